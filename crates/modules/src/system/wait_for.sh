# shellcheck shell=sh disable=SC2154
if [ ! -e "$arg_path" ] && [ ! -L "$arg_path" ]; then
    result_bool exists ''
    exit 0
fi
result_bool exists 1
if [ "$arg_read" ] && [ -f "$arg_path" ]; then
    head -c 1048576 "$arg_path" || fail "cannot read $arg_path"
fi
