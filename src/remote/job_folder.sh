# shellcheck shell=sh disable=SC2154,SC2034
# Jobs live below the home, or below /var/tmp where the home cannot be written: both outlive a reboot.
#
# Whoever makes the file `keeper` in the folder of a job runs it, and nobody else ever does: it is made once, whole, and
# synced before the job begins. It says which process that is, since when, with which nonce, and in which boot. `out`
# and `err` are what the job writes; `code` appears when it has ended, synced.

mask=$(umask)
umask 077
places=${HOME:-/nonexistent}/.etcdrun/jobs:/var/tmp/etcdrun-$(id -u)/jobs
read -r boot </proc/sys/kernel/random/boot_id

# Others could have made a folder in /var/tmp under our name.
is_ours() { [ -d "$1" ] && [ -O "$1" ]; }

# Sets $job to the folder of the job, or to nothing.
find_job() {
	job=''
	for place in "${places%:*}" "${places##*:}"; do
		if is_ours "$place/$arg_id" && is_ours "$place"; then
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
	start=$1
}

# Whether somebody has begun the job; sets what is known of him.
is_begun() {
	keeper='' began='' nonce='' its_boot=''
	[ -n "$job" ] && { read -r keeper began nonce its_boot <"$job/keeper"; } 2>/dev/null
}

# Whether the process that keeps the job is still there.
is_kept() {
	[ "$its_boot" = "$boot" ] && started_at "$keeper" && [ "$start" = "$began" ]
}

sync_files() { sync "$@" 2>/dev/null || sync; }
