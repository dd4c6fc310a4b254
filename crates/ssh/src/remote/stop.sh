# shellcheck shell=sh disable=SC2154
# Lets the runner $arg_runner start no further step. It looks for the file after every step, and
# removes it when it leaves; where it has left already, that is for us to do.

stop=${TMPDIR:-/tmp}/etcdrun-stop-$arg_halt
kill -0 "$arg_runner" 2>/dev/null || exit 0
(umask 077 && set -C && : >"$stop") || fail "cannot write $stop"
kill -0 "$arg_runner" 2>/dev/null || rm -f "$stop"
