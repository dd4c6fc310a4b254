# shellcheck shell=sh disable=SC2154
# Runs arg_cmd in a shell of its own. It travels in the environment, which other users cannot read,
# and not on the command line, which they can.

if [ "$CHECK" ]; then
    unknown "what a command does cannot be predicted"
    exit 0
fi
changed
export etcdrun_command="$arg_cmd"
# shellcheck disable=SC2016 # The inner shell expands it.
set -- "$arg_executable" -c 'eval "unset etcdrun_command; $etcdrun_command"'
if [ "$arg_has_stdin" ]; then
    printf '%s' "$arg_stdin" | "$@" 3>&-
    exit $?
fi
exec "$@" < /dev/null 3>&-
