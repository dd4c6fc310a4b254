# shellcheck shell=sh
# Runs the script of the job in folder $1, ends it after $2 seconds (0: never), and records how it ended.

job=$1
limit=$2
trap '' HUP

if command -v setsid >/dev/null 2>&1; then
	setsid sh "$job/script" </dev/null >"$job/out" 2>"$job/err" &
	group=-$!
else
	sh "$job/script" </dev/null >"$job/out" 2>"$job/err" &
	group=$!
fi
runner=${group#-}

watch=''
if [ "$limit" -gt 0 ]; then
	(
		sleep "$limit" &
		nap=$!
		trap 'kill "$nap"; exit' TERM
		wait "$nap"
		: >"$job/overdue"
		kill -s TERM -- "$group"
		sleep 2
		kill -s KILL -- "$group" 2>/dev/null
	) &
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
printf '%s\n' "$code" >"$job/code.new"
sync "$job/code.new" "$job/out" "$job/err" 2>/dev/null
mv "$job/code.new" "$job/code"
sync "$job" 2>/dev/null
