# shellcheck shell=sh disable=SC2154,SC2034
# Locks live in one folder of the host, $arg_place, whoever looks: all users share it, and it outlives a reboot.
# Everybody can read what is in it; the sticky bit leaves it to the owner and to root to remove it.
#
# NAME.lock is held by one run, NAME+shared+RUN by one of several. The first line of each is the generation and the
# run, the second says who that is. NAME+generation+UID has a number a line, which only ever go up; the highest of all
# users counts. What a lock says never changes in place: another file takes its place. Names of locks have no plus sign. What begins with one is on its way in or out.

place=$arg_place
digits=${_nonce#*-}
umask 022

# Makes the folder, or says why there can be no lock.
open_place() {
	# shellcheck disable=SC2174 # What is above it is not ours to open up.
	[ -d "$place" ] || mkdir -p -m 1777 "$place" 2>/dev/null
	# Somebody else may be making it just now.
	tries=0
	while [ ! -w "$place" ] && [ "$tries" -lt 5 ]; do
		tries=$((tries + 1))
		sleep 0.1 2>/dev/null || sleep 1
	done
	[ ! -L "$place" ] || fail "$place is a link, so it is not used for locks"
	[ -w "$place" ] || fail "cannot write to $place, where the locks of this host are; lock_dir names another folder, for all operators alike"
	# Whoever owns the folder could remove the locks of others, so root takes it over from anybody else.
	if [ ! -O "$place" ] && [ -O / ]; then
		{ chown 0:0 "$place" && chmod 1777 "$place"; } || fail "cannot take over $place"
	fi
}

# Sets $generation, $run and $owner from the lock file $1.
read_lock() {
	generation='' run='' owner=''
	{ read -r generation run && read -r owner; } 2>/dev/null <"$1"
	[ -n "$run" ]
}

# Sets $generation to that of the lock $1, 0 if it was never held.
read_generation() {
	generation=0
	generations=0
	for file in "$place/$1+generation+"*; do
		while read -r number _; do
			generations=$((generations + 1))
			case $number in '' | *[!0-9]*) continue ;; esac
			[ "$number" -le "$generation" ] || generation=$number
		done 2>/dev/null <"$file"
	done
}

# Sets $uid, without a fork.
read_uid() {
	uid=''
	while read -r key uid _; do
		[ "$key" != Uid: ] || return 0
	done </proc/self/status
}

# Puts the lines behind $1 into that file, whole or not at all. $1 must be ours, or not be there.
write_whole() {
	new=$place/+new+$digits
	file=$1
	shift
	if { printf '%s\n' "$@" >"$new"; } 2>/dev/null && mv "$new" "$file" 2>/dev/null; then return 0; fi
	rm -f "$new"
	return 1
}

# From now on the generation of the lock $1 is $2.
write_generation() {
	[ -n "${uid:-}" ] || read_uid
	write_whole "$place/$1+generation+$uid" "$2"
}

# The same behind read_generation, mostly without a fork: a line more in a file of our own, until there are many.
add_generation() {
	file=$place/$1+generation+$uid
	if [ "$generations" -ge 16 ] || [ -L "$file" ] || [ ! -O "$file" ]; then
		write_generation "$@"
	else
		{ printf '%s\n' "$2" >>"$file"; } 2>/dev/null
	fi
}
