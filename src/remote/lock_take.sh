# shellcheck shell=sh disable=SC2154
# Takes the locks "$@", pairs of NAME and MODE (exclusive or shared), for the run $arg_run; all or none.
# With arg_look it takes none, and says which of them others hold.

said=''
say() {
	said="$said$*
"
}
mine=''

# Whether the file $1 is held by another run; says so.
held() {
	read_lock "$1" && [ "$run" != "$arg_run" ] && say "refused $name $generation $run $owner"
}

others_share() {
	for file in "$place/$name.shared"/*; do
		[ ! -e "$file" ] || ! held "$file" || return 0
	done
	return 1
}

# A file that is there with its whole content from the start, or not.
make_lock() {
	printf '%s %s\n%s\n' "$2" "$arg_run" "$arg_owner" >"$1.$$" || fail "cannot write $1"
	ln "$1.$$" "$1" 2>/dev/null
	made=$?
	rm -f "$1.$$"
	return "$made"
}

take() {
	lock=$place/$name.lock
	if [ "$mode" = shared ]; then
		mkdir -p "$place/$name.shared" || fail "cannot make $place/$name.shared"
		lock=$place/$name.shared/$arg_run
	fi
	read_generation "$name"
	if make_lock "$lock" "$((generation + 1))"; then
		mine="$mine $lock"
		# A shared one does not raise it: nobody is shut out.
		[ "$mode" = shared ] || write_whole "$place/$name.generation" "$((generation + 1))"
	elif held "$lock"; then
		return 1
	fi
	# Whoever comes second sees the other, so that never both go on.
	if [ "$mode" = shared ]; then
		! held "$place/$name.lock" || return 1
	else
		! others_share || return 1
	fi
	read_lock "$lock" || fail "cannot read $lock"
	say "granted $name $generation $lock"
}

look() {
	held "$place/$name.lock" || [ "$mode" = shared ] || others_share
	return 0
}

while [ $# -ge 2 ]; do
	name=$1 mode=$2
	shift 2
	if [ "$arg_look" ]; then
		look
	elif ! take; then
		# shellcheck disable=SC2086 # The paths have no blanks.
		[ -z "$mine" ] || rm -f $mine
		break
	fi
done
[ "$arg_look" ] || sync "$place" 2>/dev/null
result locks "$said"
