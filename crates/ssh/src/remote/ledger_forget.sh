# shellcheck shell=sh disable=SC2154
# Behind places.sh and ledger.sh.

# Sets jobs to 1 if there may be jobs of the run $1.
find_jobs() {
	_read_uid
	_name_spare jobs
	jobs=''
	for folder in "${HOME:-/nonexistent}/.etcdrun/jobs/$1"-* "$_spare/$1"-*; do
		[ ! -e "$folder" ] || jobs=1
	done
}

# Removes what is left of the run $1, after _look at it, or where its folder is known and it has no jobs: its ledger, and its jobs that
# have ended. Each is an argument of its own, so that what a name has in it never makes two of it.
forget_run() {
	forgotten=$1
	shift
	if [ "$_known" = "$forgotten" ]; then
		! _is_still_ours "$_ledger" || set -- "$_ledger"
	else
		! _pick runs || set -- "$@" "$_found"
		_name_spare jobs
		jobs=$_home/.etcdrun/jobs
		_is_trusted "$_home" "$_home/.etcdrun" "$jobs" || jobs=/nonexistent
		_is_trusted /var/tmp "$_above" "$_spare" || _spare=/nonexistent
		for folder in "$jobs/$forgotten"-* "$_spare/$forgotten"-*; do
			case ${folder##*/} in *[!A-Za-z0-9._+-]*) continue ;; esac
			if [ -e "$folder/code" ]; then set -- "$@" "$folder"; fi
		done
	fi
	[ $# = 0 ] || rm -rf -- "$@"
}
