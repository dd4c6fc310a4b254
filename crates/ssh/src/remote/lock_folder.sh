# shellcheck shell=sh disable=SC2154,SC2034
# Locks live in one folder of the host, $arg_place, whoever looks: all users share it, and it outlives a reboot.
# Everybody can read what is in it; the sticky bit leaves it to the owner and to root to remove it. Whoever owns the folder could
# remove them all, so it must be root's or our own.
#
# NAME.lock is held by one run, NAME+shared+RUN by one of several. The first line of each is the generation and the
# run, the second says who that is. NAME+generation+UID has a number a line, which only ever go up; root's and our own
# count. What a lock says never changes in place: another file takes its place. Names of locks have no plus sign. What begins with one is on its way in or out.
#
# Any user of the host can put something into the folder, under any name. What is no regular file is not opened, no more than a
# little is read of what is not ours, and it must be such as we write.

place=$arg_place
umask 022

# After a look: whether only we and root can remove or replace our locks there.
is_good_place() { _is_safe "$place" && _is_safe "${place%/*}/."; }

# After _look_ahead: makes the folder for the locks "$@", or says why there can be none. Fails if there are locks in one that root cannot replace.
open_place() {
	if ! _is_there "$place"; then
		# shellcheck disable=SC2174 # What is above it is not ours to open up.
		mkdir -p -m 1777 "$place" 2>/dev/null
		_look_ahead "$arg_run" "$place" "$@"
	fi
	if ! is_good_place && [ "$_uid" = 0 ] && is_strangers "$place"; then
		replace_place || return 1
		_look_ahead "$arg_run" "$place" "$@"
	fi
	[ ! -L "$place" ] || fail "$place is a link, so it is not used for locks"
	# Somebody else may be making it just now.
	tries=0
	while [ ! -w "$place" ] && [ "$tries" -lt 5 ]; do
		tries=$((tries + 1))
		sleep 0.1 2>/dev/null || sleep 1
	done
	[ -w "$place" ] || fail "cannot write to $place, where the locks of this host are; set lock_dir to another directory, the same for all operators"
	[ "$tries" = 0 ] || _look_ahead "$arg_run" "$place" "$@"
	is_good_place || refuse_place
}

refuse_place() {
	if is_strangers "$place"; then
		fail "cannot store a lock in $place: another user owns it, who could remove the locks of others; a run with --become replaces it by a directory of root"
	fi
	fail "cannot store a lock in $place: others could remove it, because they can write to it or to ${place%/*} and the sticky bit is missing"
}

# After _see: whether $1 is somebody's who is neither root nor we.
is_strangers() {
	_is_there "$1" || return 1
	case $_seen in *"$_newline"????" 0 $1$_newline"* | *"$_newline"????" $_uid $1$_newline"*) return 1 ;; esac
}

# Root takes the place of a folder that somebody else has made, by a rename, which follows no link. It is not given to root instead: what its
# owner has set up for files in it (such as access for himself) would stay. Fails if there are locks in it.
replace_place() {
	! has_locks "$place" || return 1
	aside=$place.not-ours-$_scratch
	mv "$place" "$aside" 2>/dev/null || fail "cannot move $place away, which another user owns"
	if has_locks "$aside"; then
		mv "$aside" "$place" 2>/dev/null || fail "cannot move $aside back to $place"
		return 1
	fi
	mkdir -m 1777 "$place" 2>/dev/null || fail "cannot create $place, which another user owned"
	note "$place belonged to another user, so root has made another; the old one is now $aside"
}

# Whether there are locks in the folder $1.
has_locks() {
	for file in "$1"/*.lock "$1"/*+shared+*; do
		case ${file##*/} in *[!A-Za-z0-9._+-]*) continue ;; esac
		! read_lock "$file" || return 0
	done
	return 1
}

# Sets $generation, $run and $owner from the lock file $1.
read_lock() {
	generation='' run='' owner=''
	if [ ! -f "$1" ] || [ -L "$1" ]; then return 1; fi
	if [ -O "$1" ]; then
		{ read -r generation run && read -r owner; } 2>/dev/null <"$1"
	else
		read_strangers "$1"
	fi
	case $generation in '' | *[!0-9]* | ????????????????*) run='' ;; esac
	case $run in *[!A-Za-z0-9._-]*) run='' ;; esac
	[ -n "$run" ]
}

# The same for a file of somebody else, who may exchange it at any time for one that never ends.
read_strangers() {
	limit=''
	! have timeout || limit='timeout 5'
	# shellcheck disable=SC2086 # Words, or none.
	text=$($limit head -c 4096 "$1" 2>/dev/null)
	{ read -r generation run && read -r owner; } <<END
$text
END
}

# After _see: whether the file $1 is ours.
is_mine() { _is_file_of "$1" "$_uid"; }

# Sets $generation to that of the lock $1, 0 if it was never held. After _look_ahead.
read_generation() {
	generation=0
	generations=0
	for user in 0 ${_uid#0}; do
		file=$place/$1+generation+$user
		_is_file_of "$file" "$user" || continue
		while read -r number _; do
			generations=$((generations + 1))
			# A number that does not fit would never go up.
			case $number in '' | *[!0-9]* | 0?* | ????????????????*) continue ;; esac
			[ "$number" -le "$generation" ] || generation=$number
		done 2>/dev/null <"$file"
	done
}

# Puts the lines behind $1 into that file, whole or not at all. Whatever is there must be ours, or goes. They come from a folder that
# only we can write: a name in $place can be taken by others as soon as they have seen it once.
write_whole() {
	new=$place/+new+$_scratch
	file=$1
	shift
	_see "$file"
	if _is_there "$file" && ! is_mine "$file"; then rm -f -- "$file" 2>/dev/null || return 1; fi
	mkdir -m 700 "$new" 2>/dev/null || return 1
	if { printf '%s\n' "$@" >"$new/file"; } 2>/dev/null && mv -f "$new/file" "$file" 2>/dev/null; then
		rmdir "$new"
		_see "$file"
		is_mine "$file"
		return
	fi
	rm -f "$new/file"
	rmdir "$new"
	return 1
}

# From now on the generation of the lock $1 is $2.
write_generation() {
	write_whole "$place/$1+generation+$_uid" "$2"
}

# The same behind read_generation, mostly without a fork: a line more in a file of our own, until there are many.
add_generation() {
	file=$place/$1+generation+$_uid
	if [ "$generations" -ge 16 ] || ! is_mine "$file"; then
		write_generation "$@"
	else
		{ printf '%s\n' "$2" >>"$file"; } 2>/dev/null
	fi
}
