# shellcheck shell=sh disable=SC2154
# Runs arg_cmd in a shell of its own, which reads it from a pipe: a command line can be read by all
# users of the host, an environment by this one.

if [ "$CHECK" ]; then
    unknown "what a command does cannot be predicted"
    exit 0
fi
changed
set -- "$arg_executable" -c '. /dev/fd/4'
if [ "$arg_has_stdin" ]; then
    printf '%s' "$arg_stdin" | "$@" 3>&- 4<<END_OF_COMMAND
exec 4<&-; $arg_cmd
END_OF_COMMAND
    exit $?
fi
exec "$@" < /dev/null 3>&- 4<<END_OF_COMMAND
exec 4<&-; $arg_cmd
END_OF_COMMAND
