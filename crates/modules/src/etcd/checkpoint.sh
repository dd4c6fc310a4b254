# shellcheck shell=sh disable=SC2154
# The index of the newest snapshot of the log, as its name has it: TERM-INDEX.snap, in hexadecimal.

newest=''
for file in "$arg_data_dir"/member/snap/*.snap; do
    if [ -f "$file" ]; then newest=$file; fi
done
newest=${newest##*-}
result index "${newest%.snap}"
