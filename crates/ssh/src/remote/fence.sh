# shellcheck shell=sh
_lock=''

# Whether a lock is still held: the first line of the file $1 is $2. No fork, since every step asks. The first one
# stays open on descriptor 9 while we are at work, so that whoever breaks the lock can see us, and wait. What a lock says never
# changes in place, so as long as it is the same file, nobody need read it again.
_held() {
	if [ "$_lock" = "$1" ]; then
		# shellcheck disable=SC3013 # All shells that we meet have it.
		[ "$1" -ef /proc/self/fd/9 ]
		return
	fi
	# What is no file could keep us waiting.
	[ -f "$1" ] || return 1
	[ -n "$_lock" ] || { command exec 9<"$1"; } 2>/dev/null || return 1
	{ read -r _line <"$1"; } 2>/dev/null && [ "$_line" = "$2" ] && _lock=${_lock:-$1}
}

# Ends the step $1 without running it.
_unheld() {
	_ending lock_lost
	_text fail 'the lock on this host is no longer held by this run; somebody broke it, so nothing more is changed'
	_end "$1" 1 stop
}
