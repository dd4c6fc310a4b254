# shellcheck shell=sh disable=SC2154
# The index of the newest snapshot of the log, as its name has it: TERM-INDEX.snap, in hexadecimal. And how much is in the log, if
# that is asked for: its files are filled up with zeros.

newest=''
for file in "$arg_data_dir"/member/snap/*.snap; do
    if [ -f "$file" ]; then newest=$file; fi
done
newest=${newest##*-}
result index "${newest%.snap}"
if [ "$arg_count" ]; then
    result bytes "$(cat "$arg_data_dir"/member/wal/*.wal | tr -d '\000' | wc -c)"
fi
