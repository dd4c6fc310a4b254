# shellcheck shell=sh disable=SC2034
# Sets $left to what is left of the run $1, a path a line: its ledger, and its jobs that have ended.
find_left() {
	left=''
	for folder in "${HOME:-/nonexistent}/.etcdrun/runs/$1" /var/tmp/etcdrun-runs-*/"$1"; do
		if [ -d "$folder" ] && [ -O "$folder" ]; then
			left="$left$folder
"
		fi
	done
	for folder in "${HOME:-/nonexistent}/.etcdrun/jobs/$1"-* /var/tmp/etcdrun-*/jobs/"$1"-*; do
		if [ -e "$folder/code" ] && [ -O "$folder" ]; then
			left="$left$folder
"
		fi
	done
}

# Removes what the lines of $1 name, in one process.
remove_lines() {
	[ -n "$1" ] || return 0
	IFS='
'
	set -f
	# shellcheck disable=SC2086 # One path a line.
	rm -rf $1
	set +f
	unset IFS
}
