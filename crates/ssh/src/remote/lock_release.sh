# shellcheck shell=sh disable=SC2154
# Releases the locks "$@" that the run $arg_run holds, or all that it does if none is named. With arg_look it only says whose they are. With arg_break the
# generation goes up, so that a runner that still has the old one does nothing more; runners that are at work on a
# step are awaited for $arg_wait seconds, and named if they do not end. With arg_forget the ledger goes too, in the
# same exec.

count=0
owners=''
broken=$place/+broken+$_scratch

# Sets $busy to the runners that have one of the broken locks open.
find_busy() {
	busy=''
	for process in /proc/[0-9]*; do
		for file in "$broken"/*; do
			# shellcheck disable=SC3013 # All shells that we meet have it.
			if [ "$process/fd/9" -ef "$file" ]; then busy="$busy ${process#/proc/}"; fi
		done
	done
}

# Moves the lock $1 into a folder of ours, where nobody can give its name to something else.
break_lock() {
	[ -d "$broken" ] || mkdir -m 700 "$broken" 2>/dev/null || fail "cannot write to $place"
	raise_generation "$name"
	mv "$1" "$broken/$count" 2>/dev/null || fail "$1 belongs to another user; only that user or root can break it"
}

raise_generation() {
	_see "$place/$1+generation+0" "$place/$1+generation+$_uid"
	read_generation "$1"
	write_generation "$1" "$((generation + 1))"
}

# Waits for those who have a lock open that was broken.
await_busy() {
	find_busy
	while [ -n "$busy" ] && [ "$arg_wait" -gt 0 ]; do
		sleep 1
		arg_wait=$((arg_wait - 1))
		find_busy
	done
	result busy "${busy# }"
	rm -f -- "$broken"/*
	rmdir "$broken"
	# What was killed half-way long ago.
	find "$place" -mindepth 1 -maxdepth 1 -name '+*' -user "$_uid" -mmin +1440 -exec rm -rf {} + 2>/dev/null
}

# The usual case in one process: the locks "$@", what is in the ledger, and that folder, which is empty by then. Not every rm has -d.
remove_together() {
	if [ -z "$arg_forget" ] || [ "$_known" != "$arg_run" ] || ! _is_still_ours "$_ledger"; then return 1; fi
	set -- "$@" "$_ledger"/*
	[ $# -le 1000 ] && rm -fd -- "$@" "$_ledger" 2>/dev/null
}

# Finds the locks among the files "$@", and releases or breaks them.
go_through() {
	left=$#
	while [ "$left" -gt 0 ]; do
		lock=$1
		shift
		left=$((left - 1))
		case ${lock##*/} in *[!A-Za-z0-9._+-]*) continue ;; esac
		if ! read_lock "$lock" || [ "$run" != "$arg_run" ]; then continue; fi
		name=${lock##*/}
		name=${name%.lock}
		name=${name%%+*}
		if [ -z "$arg_look" ]; then
			[ -n "$_good" ] || fail "cannot release $lock: another user owns $place; log in as that user, or let root remove the directory"
			if [ "$arg_break" ]; then
				break_lock "$lock"
			elif [ -O "$lock" ] && [ ! -L "$lock" ]; then
				set -- "$@" "$lock"
			else
				continue
			fi
		fi
		count=$((count + 1))
		owners="$owners$owner
"
	done
	[ ! -d "$broken" ] || await_busy
	# Not -r: another user may have made a folder with the name of a lock that is gone.
	if ! remove_together "$@"; then
		[ $# = 0 ] || rm -f -- "$@" 2>/dev/null
		[ -z "$arg_forget" ] || forget_run "$arg_run" 2>/dev/null
	fi
	for lock; do
		[ ! -e "$lock" ] || fail "cannot remove $lock"
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
# What other users cannot have replaced since the last look needs no new one. Jobs are rare.
find_jobs "$arg_run"
if [ "$_good" != "$place" ] || [ "$_known" != "$arg_run" ] || [ -n "$jobs" ] || [ "$arg_break" ]; then
	_good='' _known=''
	_look "$arg_run" "$place" "${place%/*}/."
	if is_good_place; then _good=$place; fi
fi
go_through "$@"
result owners "$owners"
result_int released "$count"
[ "$count" = 0 ] || [ "$arg_look" ] || changed
