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
		[ ! -e "$file" ] || ! held "$file" || return 0
	done
	return 1
}

# Makes the file $1 with its whole content from the start, and then the generation $2 that of the lock $name. Fails if
# it is there; an earlier process of this run may have left it, which has nothing more to say: then it becomes ours,
# with a generation that shuts the other one out. If it is ours already, this machine has another name in the inventory.
make_lock() {
	new=$place/+new+$digits
	[ -n "${uid:-}" ] || read_uid
	if ! { printf '%s %s\n%s\n' "$2" "$arg_run" "$arg_owner" >"$new"; } 2>/dev/null; then
		rm -f "$new"
		refuse "cannot write to $place"
	fi
	if ln "$new" "$1" 2>/dev/null; then
		mine="$mine
$1"
		# The lock begins with it, so the other name of that file can go on as the generation.
		mv "$new" "$place/$name+generation+$uid" 2>/dev/null && return 0
		rm -f "$new"
		refuse "cannot write to $place"
	fi
	if read_lock "$1" && [ "$run" = "$arg_run" ] && [ "$owner" != "$arg_owner" ] && mv "$new" "$1" 2>/dev/null; then
		mine="$mine
$1"
		write_generation "$name" "$2" || refuse "cannot write to $place"
		return 0
	fi
	rm -f "$new"
	return 1
}

take() {
	lock=$place/$name.lock
	[ "$mode" = exclusive ] || lock=$place/$name+shared+$arg_run
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

[ "$arg_look" ] || open_place
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
result locks "$said"
