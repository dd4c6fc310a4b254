# shellcheck shell=sh
_lock=''

# Whether a lock is still held: the first line of the file $1 is $2. No fork, since every step asks. The first one
# stays open on descriptor 9 while we are at work, so that whoever breaks the lock can see us, and wait.
_held() {
	[ -n "$_lock" ] || { command exec 9<"$1"; } 2>/dev/null || return 1
	_lock=${_lock:-$1}
	{ read -r _line <"$1"; } 2>/dev/null && [ "$_line" = "$2" ]
}

# Ends the step $1 without running it.
_unheld() {
	_text 'bool lock_lost' 1
	_text fail 'the lock on this host is no longer held by this run; somebody broke it, so nothing more is changed'
	_end "$1" 1 stop
}
