# shellcheck shell=sh disable=SC2154
# Behind places.sh.

# Removes what is left of the run $1, after _look at it: its ledger, and its jobs that have ended; and the files "$@" behind it. Each is
# an argument of its own, so that what a name has in it never makes two of it.
forget_run() {
	forgotten=$1
	shift
	! _pick runs || set -- "$@" "$_found"
	_name_spare jobs
	jobs=$_home/.etcdrun/jobs
	_is_trusted "$_home" "$_home/.etcdrun" "$jobs" || jobs=/nonexistent
	_is_trusted /var/tmp "$_above" "$_spare" || _spare=/nonexistent
	for folder in "$jobs/$forgotten"-* "$_spare/$forgotten"-*; do
		case ${folder##*/} in *[!A-Za-z0-9._+-]*) continue ;; esac
		if [ -e "$folder/code" ]; then set -- "$@" "$folder"; fi
	done
	[ $# = 0 ] || rm -rf -- "$@"
}
