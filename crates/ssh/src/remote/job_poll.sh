# shellcheck shell=sh disable=SC2154
# Says how the job $arg_id stands, and sends what it wrote once it has ended.

send() {
	printf '%s %s\n' "$_nonce" "$1" >&3
	cat "$job/$2" >&3
	printf '%s endtext\n' "$_nonce" >&3
}

tell_job() {
	if ! is_begun; then
		result state absent
		exit 0
	fi
	[ "$its_boot" = "$boot" ] || result_bool booted 1
	if [ ! -f "$job/code" ]; then
		if is_kept; then
			result state running
			exit 0
		fi
		# It may have ended just now.
		if [ ! -f "$job/code" ]; then
			result state lost
			exit 0
		fi
	fi
	result state finished
	result nonce "$nonce"
	result_bool capture "$(cat "$job/capture")"
	result_int code "$(cat "$job/code")"
	[ ! -e "$job/overdue" ] || result_bool overdue 1
	send file out
	send errors err
}
