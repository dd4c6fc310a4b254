# shellcheck shell=sh disable=SC2154
# Starts the script $arg_script as the job $arg_id, apart from us and from the connection: as a unit of systemd where
# there is one that obeys us, otherwise as a process in a session of its own.

write() {
	{ printf '%s\n' "$2" >"$job/$1"; } 2>/dev/null || fail "cannot write $job/$1, so nothing was run"
}

make_folder() {
	for place in "${places%:*}" "${places##*:}"; do
		# Somebody else may be making the same one.
		if mkdir -p "$place/$arg_id" 2>/dev/null && is_ours "$place" && is_ours "$place/$arg_id"; then
			job=$place/$arg_id
			# What runs that never came to an end have left behind.
			find "$place" -mindepth 1 -maxdepth 1 -mtime +60 -exec rm -rf {} + 2>/dev/null
			sync_files "$place"
			return 0
		fi
	done
	fail "cannot make a folder for the job in ${places%:*} or ${places##*:}"
}

# Root is who systemd obeys. The unit outlives whoever asked for it, and what it leaves running when it ends stays.
as_unit() {
	[ -O /run/systemd/system ] && have systemd-run || return 1
	export -p >"$job/env.$arg_nonce" || return 1
	pwd >"$job/folder.$arg_nonce"
	systemd-run --quiet --collect --unit="etcdrun-$arg_id" --property=KillMode=process \
		sh "$job/keep.$arg_nonce" "$job" "$arg_nonce" "$arg_limit" "$mask" "${_lock:-}" </dev/null >/dev/null 2>&1 3>&-
}

as_process() {
	rm -f "$job/env.$arg_nonce" "$job/folder.$arg_nonce"
	detach='nohup'
	have setsid && detach='setsid'
	$detach sh "$job/keep.$arg_nonce" "$job" "$arg_nonce" "$arg_limit" "$mask" "${_lock:-}" </dev/null >/dev/null 2>&1 3>&- &
}

start_job() {
	[ -n "$job" ] || make_folder
	write capture "$arg_capture"
	write "keep.$arg_nonce" "$arg_keeper"
	write "script.$arg_nonce" "$arg_script"
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
	write "keeper.$arg_nonce.given-up" 'nobody'
	ln "$job/keeper.$arg_nonce.given-up" "$job/keeper" 2>/dev/null || return 0
	rm -rf "$job"
	fail "the job $arg_id did not begin, and never will"
}
