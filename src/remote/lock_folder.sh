# shellcheck shell=sh disable=SC2154,SC2034
# Locks live below the home, or below /var/tmp where the home cannot be written: both outlive a reboot.
# NAME.lock is held by one run, NAME.shared/RUN by one of several. The first line of each is the generation
# and the run, the second says who that is. NAME.generation only ever goes up.

umask 077
place=${HOME:-/nonexistent}/.etcdrun/locks
if ! mkdir -p "$place" 2>/dev/null || [ ! -w "$place" ]; then
	place=/var/tmp/etcdrun-locks-$(id -u)
	{ mkdir "$place" || [ "$(stat -c %u "$place")" = "$(id -u)" ]; } 2>/dev/null || fail "cannot make a folder for locks in $place"
fi

# Sets $generation and $run from the lock file $1, and $owner.
read_lock() {
	generation='' run='' owner=''
	{ read -r generation run && read -r owner; } 2>/dev/null <"$1"
	[ -n "$run" ]
}

# Sets $generation to that of the lock $1, 0 if it was never held.
read_generation() {
	generation=0
	[ ! -e "$place/$1.generation" ] || read -r generation <"$place/$1.generation"
}

# Writes $2 to the file $1, whole or not at all.
write_whole() {
	printf '%s\n' "$2" >"$1.$$" && mv "$1.$$" "$1"
}
