# shellcheck shell=sh disable=SC2154
# Starts the script $arg_script as the job $arg_id, apart from us and from the connection: as a unit of systemd where
# there is one that obeys us, otherwise as a process in a session of its own. Its files are named by $arg_ticket: whoever knows the
# nonce could speak for the job, and all users of the host can read command lines.

write() {
	{ printf '%s\n' "$2" >"$job/$1"; } 2>/dev/null || fail "cannot write $job/$1, so nothing was run"
}

make_folder() {
	_open jobs "$arg_id" || fail "$(_not_open jobs), so nothing was run"
	job=$_found
	[ -n "$_is_new" ] || return 0
	# What runs that never came to an end have left behind.
	find "${job%/*}" -mindepth 1 -maxdepth 1 -mtime +60 -exec rm -rf {} + 2>/dev/null
	sync_files "${job%/*}"
}

# Root is who systemd obeys. The unit outlives whoever asked for it, and what it leaves running when it ends stays.
as_unit() {
	[ -O /run/systemd/system ] && have systemd-run || return 1
	export -p >"$job/env.$arg_ticket" || return 1
	pwd >"$job/folder.$arg_ticket"
	systemd-run --quiet --collect --unit="etcdrun-$arg_id" --property=KillMode=process \
		sh "$job/keep.$arg_ticket" "$job" "$arg_ticket" "$arg_limit" "$mask" "${_lock:-}" </dev/null >/dev/null 2>&1 3>&-
}

as_process() {
	rm -f "$job/env.$arg_ticket" "$job/folder.$arg_ticket"
	detach='nohup'
	have setsid && detach='setsid'
	$detach sh "$job/keep.$arg_ticket" "$job" "$arg_ticket" "$arg_limit" "$mask" "${_lock:-}" </dev/null >/dev/null 2>&1 3>&- &
}

start_job() {
	[ -n "$job" ] || make_folder
	write capture "$arg_capture"
	write "nonce.$arg_ticket" "$arg_nonce"
	write "keep.$arg_ticket" "$arg_keeper"
	write "script.$arg_ticket" "$arg_script"
	# If systemd-run failed and yet started it, both are there; only one of them will run the script.
	as_unit || as_process
	for _ in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		! is_begun || return 0
		sleep 0.02 2>/dev/null || sleep 1
	done
	for _ in 1 2 3 4 5 6 7 8 9 10; do
		! is_begun || return 0
		sleep 1
	done
	# It must not begin once we have given up: whoever makes that file decides.
	write "keeper.$arg_ticket.given-up" 'nobody'
	ln "$job/keeper.$arg_ticket.given-up" "$job/keeper" 2>/dev/null || return 0
	rm -rf "$job"
	fail "the job $arg_id did not start, and never will"
}
