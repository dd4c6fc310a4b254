# shellcheck shell=sh disable=SC2154
# Starts the script $arg_script as the job $arg_id, apart from us and from the connection.
# The folder is the intent: once it is there, nobody starts this job a second time.

find_job
[ -z "$job" ] || fail "there is a job $arg_id already"
for place in "${places%:*}" "${places##*:}"; do
	if mkdir -p "$place" 2>/dev/null && is_ours "$place" && mkdir "$place/$arg_id" 2>/dev/null; then
		job=$place/$arg_id
		break
	fi
done
[ -n "$job" ] || fail "cannot make a folder for the job in ${places%:*} or ${places##*:}"

write() {
	printf '%s\n' "$2" >"$job/$1" || {
		rm -rf "$job"
		fail "cannot write $job/$1"
	}
}
write boot "$(boot_id)"
write nonce "$arg_nonce"
write capture "$arg_capture"
write script "$arg_script"

detach='nohup'
have setsid && detach='setsid'
$detach sh -c "$arg_keeper" etcdrun-job "$job" "$arg_limit" </dev/null >/dev/null 2>&1 3>&- &
write keeper.new "$! $(started_at $!)"
mv "$job/keeper.new" "$job/keeper"
sync "$job/keeper" 2>/dev/null
changed
