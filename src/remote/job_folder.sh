# shellcheck shell=sh disable=SC2154
# Jobs live below the home, or below /var/tmp where the home cannot be written: both outlive a reboot.

umask 077
places=${HOME:-/nonexistent}/.etcdrun/jobs:/var/tmp/etcdrun-$(id -u)/jobs

# Others could have made a folder in /var/tmp under our name.
is_ours() { [ -d "$1" ] && [ "$(stat -c %u "$1")" = "$(id -u)" ]; }

# Sets $job to the folder of the job, or to nothing.
find_job() {
	job=''
	for place in "${places%:*}" "${places##*:}"; do
		if [ -d "$place/$arg_id" ] && is_ours "$place" && is_ours "$place/$arg_id"; then
			job=$place/$arg_id
			return
		fi
	done
}

# When process $1 started, in ticks since boot. A process id alone may belong to someone else by now.
started_at() {
	{ read -r line <"/proc/$1/stat"; } 2>/dev/null || return 1
	line=${line##*) }
	# shellcheck disable=SC2086 # The fields are wanted apart.
	set -- $line
	[ "$1" != Z ] || return 1
	shift 19
	echo "$1"
}

boot_id() { cat /proc/sys/kernel/random/boot_id; }

# Whether the process that keeps the job is still there.
is_kept() {
	[ "$(cat "$job/boot")" = "$(boot_id)" ] || return 1
	{ read -r keeper began <"$job/keeper"; } 2>/dev/null || return 1
	[ "$(started_at "$keeper")" = "$began" ]
}
