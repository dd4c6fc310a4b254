# shellcheck shell=sh
# Removes what is left of the run $1: its ledger, and its jobs that have ended.
forget_run() {
	for folder in "${HOME:-/nonexistent}/.etcdrun/runs/$1" /var/tmp/etcdrun-runs-*/"$1"; do
		if [ -d "$folder" ] && [ -O "$folder" ]; then rm -rf "$folder"; fi
	done
	for folder in "${HOME:-/nonexistent}/.etcdrun/jobs/$1"-* /var/tmp/etcdrun-*/jobs/"$1"-*; do
		if [ -e "$folder/code" ] && [ -O "$folder" ]; then rm -rf "$folder"; fi
	done
}
