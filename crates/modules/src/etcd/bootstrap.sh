# shellcheck shell=sh disable=SC2154
# What is in the folder for the data. A folder that cannot be read is not an empty one.
#   empty    nothing, or folders with nothing in them
#   remains  files, but no log: a member that never got far, or one that lost its log
#   data     a log
# "$@" are files without which the member cannot start.

for file in "$@"; do
    if [ ! -e "$file" ]; then
        result missing "$file"
        break
    fi
done
if [ ! -e "$arg_data_dir" ] && [ ! -L "$arg_data_dir" ]; then
    result found empty
    exit 0
fi
[ -d "$arg_data_dir" ] || fail "$arg_data_dir is not a directory"
ls -A "$arg_data_dir" > /dev/null || fail "cannot read $arg_data_dir"
for log in "$arg_data_dir"/member/wal/*.wal; do
    if [ -e "$log" ]; then
        result found data
        exit 0
    fi
done
files=$(find "$arg_data_dir" -name lost+found -prune -o ! -type d -print) || fail "cannot read all of $arg_data_dir"
if [ "$files" ]; then
    result found remains
else
    result found empty
fi
