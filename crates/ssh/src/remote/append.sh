# shellcheck shell=sh disable=SC2154
# Appends what comes on stdin to the file $arg_path, which has $arg_offset bytes; none of what is there counts if that is 0.
# Then it also tells the checksum, which it takes while the bytes come: to read a large file once more takes seconds.
umask 077
if [ "$arg_offset" = 0 ]; then rm -f "$arg_path"; fi
size=0
if [ -e "$arg_path" ]; then size=$(wc -c <"$arg_path"); fi
[ "$size" -eq "$arg_offset" ] || fail "$arg_path has $size bytes, not $arg_offset"
if [ "$arg_offset" != 0 ] || ! have sha256sum; then
	cat >>"$arg_path" || fail "cannot write $arg_path"
	exit 0
fi
said=$({ { tee "$arg_path" 4>&-; echo $? >&4; } | sum_of_much 4>&-; } 4>&1)
case $said in
0*) ;;
*) fail "cannot write $arg_path" ;;
esac
# The first line is the code of tee.
said=${said#*
}
result sha256 "${said%% *}"
