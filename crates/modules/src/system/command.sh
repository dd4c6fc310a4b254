# shellcheck shell=sh disable=SC2154
# Runs "$@" and lets its exit code be the result.

if [ "$CHECK" ]; then
    unknown "what a command does cannot be predicted"
    exit 0
fi
changed
if [ "$arg_has_stdin" ]; then
    printf '%s' "$arg_stdin" | "$@" 3>&-
    exit $?
fi
exec "$@" < /dev/null 3>&-
