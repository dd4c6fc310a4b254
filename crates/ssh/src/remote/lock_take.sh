# shellcheck shell=sh disable=SC2154
# Takes the locks "$@", pairs of NAME and MODE (exclusive or shared), for the run $arg_run; all or none.
# With arg_look it takes none, and says which of them others hold.

said=''
say() {
	said="$said$*
"
}
# One path a line.
mine=''

give_back() {
	while read -r path; do
		[ -z "$path" ] || rm -f "$path"
	done <<END
$mine
END
	mine=''
}

refuse() {
	give_back
	fail "$*, so there is no lock"
}

# Whether the file $1 is held by another run; says so.
held() {
	read_lock "$1" && [ "$run" != "$arg_run" ] && say "refused $name $generation $run $owner"
}

others_share() {
	for file in "$place/$name+shared+"*; do
		case ${file##*/} in *[!A-Za-z0-9._+-]*) continue ;; esac
		! held "$file" || return 0
	done
	return 1
}

# Makes the lock file $1, of the generation $2. Fails if it is there; an earlier process of this run may have left it,
# which has nothing more to say: then it becomes ours, with a generation that shuts the other one out. If it is ours
# already, this machine has another name in the inventory. No fork, since every run comes by here.
make_lock() {
	refuse_odd "$1"
	set -C
	# Not `:`, whose failure would end the shell. What is no file would be opened also with -C.
	if [ ! -e "$1" ] && { printf '' >"$1"; } 2>/dev/null; then
		set +C
		mine="$mine
$1"
		if { printf '%s %s\n%s\n' "$2" "$arg_run" "$arg_owner" >"$1"; } 2>/dev/null && add_generation "$name" "$2"; then
			return 0
		fi
		refuse "cannot write to $place"
	fi
	set +C
	[ -e "$1" ] || refuse "cannot write to $place"
	await_lock "$1"
	[ "$run" = "$arg_run" ] || return 1
	_see "$1"
	if ! _is_there "$1"; then return 1; fi
	is_mine "$1" || refuse "$1 says that it is of this run, and another user has made it; look at it, then remove it"
	[ "$owner" != "$arg_owner" ] || return 1
	write_whole "$1" "$2 $arg_run" "$arg_owner" || refuse "cannot write to $place"
	mine="$mine
$1"
	write_generation "$name" "$2" || refuse "cannot write to $place"
}

# What is no file can be no lock, and could keep us waiting for ever.
refuse_odd() {
	if [ -L "$1" ] || { [ -e "$1" ] && [ ! -f "$1" ]; }; then refuse "$1 is not a regular file; look who made it, then remove it"; fi
}

# Whoever has just made the lock file $1 is about to say who that is.
await_lock() {
	tries=0
	until read_lock "$1"; do
		refuse_odd "$1"
		# It was given back meanwhile.
		[ -e "$1" ] || return 0
		tries=$((tries + 1))
		[ "$tries" -lt 20 ] || refuse "$1 says not whose it is: whoever made it was cut short. Remove it, unless a run goes on here"
		sleep 0.1 2>/dev/null || sleep 1
	done
}

take() {
	lock=$place/$name.lock
	[ "$mode" = exclusive ] || lock=$place/$name+shared+$arg_run
	_seen=$generations_seen
	read_generation "$name"
	next=$((generation + 1))
	if ! make_lock "$lock" "$next" && held "$lock"; then return 1; fi
	# Whoever comes second sees the other, so that never both go on.
	if [ "$mode" = shared ]; then
		! held "$place/$name.lock" || return 1
	else
		! others_share || return 1
	fi
	read_lock "$lock" || refuse "cannot read $lock"
	[ "$run" = "$arg_run" ] || refuse "$lock is not ours"
	say "granted $name $generation $lock"
}

look() {
	held "$place/$name.lock" || [ "$mode" = shared ] || others_share
	return 0
}

[ "$arg_look" ] || open_place "$@" || arg_look=occupied
generations_seen=$_seen
while [ $# -ge 2 ]; do
	name=$1 mode=$2
	shift 2
	if [ "$arg_look" ]; then
		look
	elif ! take; then
		give_back
		break
	fi
done
if [ -n "$mine" ]; then
	IFS='
'
	set -f
	# shellcheck disable=SC2086 # One path a line.
	sync $mine "$place" 2>/dev/null || sync
fi
if [ "$arg_look$said" = occupied ]; then
	fail "cannot store a lock in $place yet: another user owns it, and there are locks in it; wait until that run has ended, or remove $place"
fi
result locks "$said"
