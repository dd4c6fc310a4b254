# shellcheck shell=sh disable=SC2034
# What may be believed on a host that has other users: what nobody else could have made, put there or given that name. Behind the
# prelude. `test` follows links, and what it looks at can be exchanged between two questions, so all of it is said by one lstat.

_newline='
'

_uid=''

# Sets _uid to ours, without a process.
_read_uid() {
	[ -z "$_uid" ] || return 0
	while read -r _key _ _uid _; do
		[ "$_key" != Uid: ] || return 0
	done </proc/self/status
	_uid=''
}

# Looks at "$@", a line each: type and mode, owner, name. A link is not followed, unless its name ends in /. here.
_see() {
	_read_uid
	_seen=$_newline$(stat -c '%f %u %n' "$@" 2>/dev/null)$_newline
}

_is_there() {
	case $_seen in *" $1$_newline"*) ;; *) return 1 ;; esac
}

# Whether $1 is a folder of ours that others can neither write nor read.
_is_private() {
	case $_seen in *"$_newline"4[15]c0" $_uid $1$_newline"*) ;; *) return 1 ;; esac
}

# Whether $1 is a folder of ours that others cannot write.
_is_ours() {
	case $_seen in *"$_newline"4?[02468ace][014589cd]" $_uid $1$_newline"*) ;; *) return 1 ;; esac
}

# Whether others cannot exchange what we have in the folder $1: it is root's or ours, and they cannot write to it, or the sticky bit
# keeps them from what is not theirs.
_is_safe() {
	for _owner in 0 "$_uid"; do
		case $_seen in
		*"$_newline"4?[02468ace][014589cd]" $_owner $1$_newline"*) return 0 ;;
		*"$_newline"4[2367abef]??" $_owner $1$_newline"*) return 0 ;;
		esac
	done
	return 1
}

# Whether $1 is a regular file of the user $2 that others cannot write.
_is_file_of() {
	case $_seen in *"$_newline"8?[02468ace][014589cd]" $2 $1$_newline"*) ;; *) return 1 ;; esac
}

# Makes the folder $1 for us alone, unless it is there and just that.
_have_private() {
	[ -d "$1" ] || mkdir -m 700 "$1" 2>/dev/null
	_see "$1" "${1%/*}/."
	_is_private "$1" && _is_safe "${1%/*}/."
}

# Removes the folder $1, which is to be one of those. What somebody else has put in its place is his.
_remove_private() {
	_see "$1"
	! _is_private "$1" || rm -rf -- "$1"
}
