# shellcheck shell=sh disable=SC2154
# Runs a script of the operator. "$@" is its interpreter, arg_before words long, and its arguments.

if [ "$CHECK" ]; then
    unknown "what a script does cannot be predicted"
    exit 0
fi
changed
if [ "$arg_staged" ]; then
    script=$arg_staged
else
    tmp_dir
    script=$TMP/$arg_name
    (umask 077 && printf '%s' "$arg_body" > "$script") || fail "cannot write $script"
fi
chmod 700 "$script" || fail "cannot make $script executable"

total=$# index=0
while [ "$index" -lt "$total" ]; do
    if [ "$index" -eq "$arg_before" ]; then set -- "$@" "$script"; fi
    set -- "$@" "$1"
    shift
    index=$((index + 1))
done
if [ "$index" -eq "$arg_before" ]; then set -- "$@" "$script"; fi
exec "$@" < /dev/null 3>&-
