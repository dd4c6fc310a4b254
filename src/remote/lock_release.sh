# shellcheck shell=sh disable=SC2154
# Releases the locks "$@" that the run $arg_run holds, or all that it does if none is named. With arg_look it only says whose they are. With arg_break the
# generation goes up, so that a runner that still has the old one does nothing more; runners that are at work on a
# step are awaited for $arg_wait seconds, and named if they do not end. With arg_forget the ledger goes too, in the
# same exec.

count=0
owners=''
broken=''
gone=''
left=''

# Sets $busy to the runners that have one of the broken locks open.
find_busy() {
	busy=''
	for process in /proc/[0-9]*; do
		for number in $broken; do
			# shellcheck disable=SC3013 # All shells that we meet have it.
			if [ "$process/fd/9" -ef "$place/+broken+$digits+$number" ]; then busy="$busy ${process#/proc/}"; fi
		done
	done
}

if [ $# = 0 ]; then
	set -- "$place"/*.lock "$place"/*+shared+"$arg_run"
else
	for name; do
		set -- "$@" "$place/$name.lock" "$place/$name+shared+$arg_run"
		shift
	done
fi
for lock; do
	read_lock "$lock" || continue
	[ "$run" = "$arg_run" ] || continue
	name=${lock##*/}
	name=${name%.lock}
	name=${name%%+*}
	if [ "$arg_look" ]; then
		:
	elif [ "$arg_break" ]; then
		read_generation "$name"
		write_generation "$name" "$((generation + 1))"
		mv "$lock" "$place/+broken+$digits+$count" 2>/dev/null || fail "$lock is another user's; only he or root can break it"
		broken="$broken $count"
	else
		gone="$gone$lock
"
	fi
	count=$((count + 1))
	owners="$owners$owner
"
done
if [ -n "$broken" ]; then
	find_busy
	while [ -n "$busy" ] && [ "$arg_wait" -gt 0 ]; do
		sleep 1
		arg_wait=$((arg_wait - 1))
		find_busy
	done
	result busy "${busy# }"
	rm -f "$place/+broken+$digits+"*
	# What was killed half-way long ago.
	find "$place" -maxdepth 1 -name '+*' -mmin +1440 -exec rm -f {} + 2>/dev/null
fi
[ -z "$arg_forget" ] || find_left "$arg_run"
remove_lines "$gone$left" 2>/dev/null
while read -r lock; do
	[ -z "$lock" ] || [ ! -e "$lock" ] || fail "cannot remove $lock"
done <<END
$gone
END
result owners "$owners"
result_int released "$count"
[ "$count" = 0 ] || [ "$arg_look" ] || changed
