# shellcheck shell=sh
# Whether a lock is still held: the first line of the file $1 is $2. No fork, since every step asks.
# Where we may not look, because the lock is another user's, nobody can tell.
_held() {
	[ -x "${1%/*}" ] || return 0
	{ read -r _line <"$1"; } 2>/dev/null && [ "$_line" = "$2" ]
}

# Ends the step $1 without running it.
_unheld() {
	_text 'bool lock_lost' 1
	_text fail 'the lock on this host is no longer held by this run; somebody broke it, so nothing more is changed'
	_end "$1" 1 stop
}
