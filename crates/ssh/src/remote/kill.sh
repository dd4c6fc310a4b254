# shellcheck shell=sh disable=SC2154
# Ends the runner $arg_runner and all that runs in its session or process group, and has started since it did: what
# an earlier task left running in a shell that stayed is not its.
#
# sshd gives every exec a session of its own. Where it does not, ours is the same as the runner's,
# and ending that would end far too much.

process() {
	{ read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
	line=${line##*) }
	state=${line%% *}
	line=${line#* * }
	group=${line%% *}
	line=${line#* }
	session=${line%% *}
	# shellcheck disable=SC2086 # The fields are wanted apart.
	set -- $line
	shift 16
	start=$1
}

signal() {
	found=''
	for entry in /proc/[0-9]*; do
		process "${entry#/proc/}" || continue
		[ "$state" != Z ] || continue
		[ "$session" = "$its_session" ] || [ "$group" = "$its_group" ] || continue
		[ "$start" -ge "$since" ] || continue
		found=1
		kill -s "$1" "${entry#/proc/}" 2>/dev/null
	done
	[ -n "$found" ]
}

its_session=$arg_runner its_group=$arg_runner since=0
if process "$arg_runner"; then
	its_session=$session its_group=$group since=$start
fi
process "$$" || fail "cannot read /proc"
[ "$its_session" != "$session" ] || its_session=none
[ "$its_group" != "$group" ] || its_group=none

signal TERM || exit 0
for _ in 1 2 3 4 5 6 7 8 9 10; do
	sleep 0.2 2>/dev/null || sleep 1
	signal 0 || exit 0
done
# What forks while it is being killed needs another round.
for _ in 1 2 3 4 5 6 7 8 9 10; do
	signal KILL || exit 0
	sleep 0.1 2>/dev/null || sleep 1
done
exit 0
