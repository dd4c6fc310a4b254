# shellcheck shell=sh disable=SC2154
# Files as the process $arg_pid sees them: "$@" are their paths. And who has the folder above its data.

number=0
for path in "$@"; do
    number=$((number + 1))
    file=/proc/$arg_pid/root$path
    [ -f "$file" ] || fail "there is no file $path, which etcd was started with"
    text=$(cat "$file") || fail "cannot read $path"
    result "file_$number" "$text
"
done
if [ "$arg_data_dir" ]; then
    above=${arg_data_dir%/*}
    result above_owner "$(stat -L -c %U "/proc/$arg_pid/root${above:-/}")"
fi
if [ "$arg_host" ] && have getent; then
    result ip "$(getent ahosts "$arg_host" | sed -n '1s/ .*//p')"
fi
