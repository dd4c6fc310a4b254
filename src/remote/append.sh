# shellcheck shell=sh disable=SC2154
# Appends what comes on stdin to the file $arg_path, which has $arg_offset bytes; none of what is there counts if that is 0.
umask 077
if [ "$arg_offset" = 0 ]; then rm -f "$arg_path"; fi
size=0
if [ -e "$arg_path" ]; then size=$(wc -c <"$arg_path"); fi
[ "$size" -eq "$arg_offset" ] || fail "$arg_path has $size bytes, not $arg_offset"
cat >>"$arg_path" || fail "cannot write $arg_path"
