# shellcheck shell=sh disable=SC2154,SC2034
# Where a user's ledgers (runs) and jobs are: below the home, or below /var/tmp where the home cannot be written or others can write to
# it. Each folder on the way counts only if nobody else could have made it.

# Looks at all of the places, at the folder $1 in each of them, and at what is named behind it.
_look() {
	_read_uid
	_home=${HOME:-/nonexistent}
	_name=$1
	shift
	_see "$_home/." "$_home/.etcdrun" "$_home/.etcdrun/runs" "$_home/.etcdrun/runs/$_name" \
		"$_home/.etcdrun/jobs" "$_home/.etcdrun/jobs/$_name" /var/tmp/. "/var/tmp/etcdrun-runs-$_uid" \
		"/var/tmp/etcdrun-runs-$_uid/$_name" "/var/tmp/etcdrun-$_uid" "/var/tmp/etcdrun-$_uid/jobs" \
		"/var/tmp/etcdrun-$_uid/jobs/$_name" "$@"
}

# The run whose places _seen shows since the locks were taken, and the folder of locks that only root or we can have exchanged since.
_looked='' _good=''

# For the shell that stays, in front of a script that takes the locks "$@" behind $2 (pairs of NAME and MODE) for the run $1: looks at
# what that script and the steps behind it want to know of the folder of locks $2, of the locks' generations and of the run's places,
# since each look takes a process.
_look_ahead() {
	_read_uid
	_run=$1 _place=$2
	shift 2
	_left=$#
	while [ "$_left" -gt 0 ]; do
		set -- "$@" "$_place/$1+generation+0" "$_place/$1+generation+$_uid"
		shift 2
		_left=$((_left - 2))
	done
	_look "$_run" "$_place" "${_place%/*}/." "$@"
	_looked=$_run _good=''
	if _is_safe "$_place" && _is_safe "${_place%/*}/."; then _good=$_place; fi
}

# Sets _spare to the second place for $1, and _above to the folder that it is in or is itself.
_name_spare() {
	case $1 in
	runs) _above=/var/tmp/etcdrun-runs-$_uid _spare=$_above ;;
	*) _above=/var/tmp/etcdrun-$_uid _spare=$_above/jobs ;;
	esac
}

# Whether only we can have put something into the folder $3, which is in $2, which is in $1, as far as they are there.
_is_trusted() {
	_is_safe "$1/." && { _is_ours "$2" || ! _is_there "$2"; } && { _is_ours "$3" || ! _is_there "$3"; }
}

# After _look: sets _found to the folder of that name among the $1 (runs or jobs). Fails if there is none, with _strange set to what
# may be it, but is not to be believed.
_pick() {
	_found='' _strange=''
	_name_spare "$1"
	_pick_in "$_home" "$_home/.etcdrun" "$_home/.etcdrun/$1" || _pick_in /var/tmp "$_above" "$_spare"
	[ -n "$_found" ] && [ -z "$_strange" ]
}

_pick_in() {
	if _is_trusted "$@"; then
		if _is_private "$3/$_name"; then _found=$3/$_name; elif _is_there "$3/$_name"; then _strange=$3/$_name; fi
	elif _is_private "$3/$_name"; then
		_strange=$3/$_name
	fi
	[ -n "$_found$_strange" ]
}

# Whether the folder $1 is still the one that we looked at. If we or root have removed it since, another user may have made it and the
# folder above it again.
_is_still_ours() {
	[ -d "$1" ] && [ -O "$1" ] && [ ! -L "$1" ] && [ -O "${1%/*}" ] && [ ! -L "${1%/*}" ]
}

# Sets _found to the folder $2 among the $1, which is made if it is not there; and _is_new if it was. Fails as _pick does.
_open() {
	_is_new=''
	# Another runner may be making one of the folders just now.
	for _ in 1 2 3 4 5; do
		# What was not there when the locks were taken is made now, or is there, and is looked at then.
		[ "$_looked" = "$2" ] || _look "$2"
		_looked=''
		if _pick "$1"; then
			! _is_still_ours "$_found" || return 0
			continue
		fi
		[ -z "$_strange" ] || return 1
		_make "$_home" "$_home/.etcdrun" "$_home/.etcdrun/$1" || _make /var/tmp "$_above" "$_spare" || return 1
		if [ -n "$_found" ] && _is_still_ours "$_found"; then
			_is_new=1
			return 0
		fi
	done
	return 1
}

# Makes what is missing of the folders $2 and $3, and that of the name in them. Fails if it cannot; sets _found unless somebody else
# was quicker.
_make() {
	_is_trusted "$@" || return 1
	for _folder in "$2" "$3" "$3/$_name"; do
		if _is_there "$_folder" || [ "$_folder" = "$_found" ]; then continue; fi
		if ! mkdir -m 700 "$_folder" 2>/dev/null; then
			_found=''
			[ -e "$_folder" ] || [ -L "$_folder" ]
			return
		fi
		_found=$_folder
	done
}

# Says why _open has failed.
_not_open() {
	_name_spare "$1"
	if [ -n "$_strange" ]; then
		printf '%s' "other users could have put something into $_strange, or into a parent directory, so it is not used (inspect it, then remove it)"
	else
		printf '%s' "cannot create a private directory in $_home/.etcdrun/$1 or $_spare"
	fi
}
