# shellcheck shell=sh disable=SC2154,SC2034
# Jobs live below the home, or below /var/tmp where the home cannot be written: both outlive a reboot. Behind places.sh.
#
# Whoever makes the file `keeper` in the folder of a job runs it, and nobody else ever does: it is made once, whole, and
# synced before the job begins. It says which process that is, since when, with which nonce, and in which boot. `out`
# and `err` are what the job writes; `code` appears when it has ended, synced.

mask=$(umask)
umask 077
read -r boot </proc/sys/kernel/random/boot_id

# Sets $job to the folder of the job, or to nothing.
find_job() {
	job=''
	_look "$arg_id"
	if _pick jobs; then
		job=$_found
	elif [ -n "$_strange" ]; then
		fail "$(_not_open jobs)"
	fi
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
	case $keeper:$began in :* | *: | *[!0-9:]*) return 1 ;; esac
	[ "$its_boot" = "$boot" ] && started_at "$keeper" && [ "$start" = "$began" ]
}

sync_files() { sync "$@" 2>/dev/null || sync; }
