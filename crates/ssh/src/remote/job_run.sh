# shellcheck shell=sh disable=SC2154
# Begins the job, unless somebody has, waits for its end, and tells what came of it. Sent again, it only waits and tells.

find_job
is_begun || start_job
tries=0
while [ ! -f "$job/code" ] && is_kept; do
	tries=$((tries + 1))
	if [ "$tries" -lt 50 ]; then
		sleep 0.02 2>/dev/null || sleep 1
	else
		sleep 0.2 2>/dev/null || sleep 1
	fi
done
tell_job
