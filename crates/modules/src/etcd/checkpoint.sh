# shellcheck shell=sh disable=SC2154
# The index of the newest snapshot of the log, as its name has it: TERM-INDEX.snap, in hexadecimal. And how much is in the log behind it,
# if that has one of these versions: "$@". Its files, SEQUENCE-INDEX.wal, are filled up with zeros.

wal=$arg_data_dir/member/wal
if [ ! -r "$wal" ] || [ ! -x "$wal" ]; then fail "cannot read $wal"; fi
newest=''
for file in "$arg_data_dir"/member/snap/*.snap; do
    if [ -f "$file" ]; then newest=$file; fi
done
newest=${newest##*-}
newest=${newest%.snap}
result index "$newest"
if [ $# = 0 ]; then exit 0; fi

# The last file that begins before the snapshot has entries of both sides.
for version; do
    shift
    set -- "$@" -e "$version"
done
files=''
for file in "$wal"/*.wal; do
    begins=${file##*-}
    if LC_ALL=C expr "x${begins%.wal}" '<=' "x$newest" > /dev/null; then files=''; fi
    files="$files ${file##*/}"
done
cd "$wal" || fail "cannot read $wal"
# An entry has the version as text. Not all greps know what to do with zeros.
# shellcheck disable=SC2086 # names without blanks
if cat $files | LC_ALL=C tr -cs '0-9.' '\n' | grep -qF "$@"; then
    result bytes "$(cat $files | tr -d '\000' | wc -c)"
fi
