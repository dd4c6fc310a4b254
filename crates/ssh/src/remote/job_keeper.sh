# shellcheck shell=sh
# Runs the script of the job in folder $1 that has the ticket $2, ends it after $3 seconds (0: never), and records how it
# ended. $4 is the umask, $5 the lock under which it runs, if any.

job=$1
ticket=$2
limit=$3
mask=$4
lock=$5
trap '' HUP
umask 077
read -r nonce <"$job/nonce.$ticket" || exit 1

# Where systemd has started us, these are what the session had.
if [ -e "$job/env.$ticket" ]; then
	# shellcheck disable=SC1090
	. "$job/env.$ticket"
	# shellcheck disable=SC2164 # Where the folder is gone we stay at the root.
	{ read -r folder <"$job/folder.$ticket" && cd "$folder"; } 2>/dev/null
	rm -f "$job/env.$ticket" "$job/folder.$ticket"
fi

# Whoever breaks the lock sees by this that we are at work. If it is broken already, nothing begins.
if [ -n "$lock" ]; then { [ -f "$lock" ] && command exec 9<"$lock"; } 2>/dev/null || exit 0; fi

read -r boot </proc/sys/kernel/random/boot_id
read -r stat <"/proc/$$/stat"
# shellcheck disable=SC2086 # The fields are wanted apart.
set -- ${stat##*) }
shift 19
# Only one of us can make it; and it is on the disk before anything is done.
printf '%s %s %s %s\n' "$$" "$1" "$nonce" "$boot" >"$job/keeper.$ticket" || exit 1
if ! ln "$job/keeper.$ticket" "$job/keeper" 2>/dev/null; then
	rm -f "$job/script.$ticket" "$job/nonce.$ticket"
	exit 0
fi
{ sync "$job/keeper" "$job" || sync; } 2>/dev/null

umask "$mask"
if command -v setsid >/dev/null 2>&1; then
	setsid sh "$job/script.$ticket" </dev/null >"$job/out" 2>"$job/err" 9<&- &
	group=-$!
else
	sh "$job/script.$ticket" </dev/null >"$job/out" 2>"$job/err" 9<&- &
	group=$!
fi
runner=${group#-}
# Whoever ends us means the job. Then nobody knows how far it came.
trap 'kill -s TERM -- "$group"; exit 143' TERM

watch=''
if [ "$limit" -gt 0 ]; then
	(
		trap - TERM
		sleep "$limit" &
		nap=$!
		trap 'kill "$nap"; exit' TERM
		wait "$nap"
		: >"$job/overdue"
		kill -s TERM -- "$group"
		sleep 2
		kill -s KILL -- "$group" 2>/dev/null
	) 9<&- &
	watch=$!
fi

wait "$runner"
code=$?
if [ -e "$job/overdue" ]; then
	wait "$watch"
elif [ -n "$watch" ]; then
	kill "$watch"
fi

# The result appears whole or not at all, even if the power fails now.
umask 077
printf '%s\n' "$code" >"$job/code.new" || exit 1
{ sync "$job/code.new" "$job/out" "$job/err" || sync; } 2>/dev/null
mv "$job/code.new" "$job/code"
{ sync "$job" || sync; } 2>/dev/null
