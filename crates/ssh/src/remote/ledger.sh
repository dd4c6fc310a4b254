# shellcheck shell=sh disable=SC2154
# Commands that must not run twice. Sent behind the prelude and places.sh where a segment has such a step.
#
# Each has a file NAME.intent, which can be made only once, then NAME.marks (our own markers, but for a mere program), NAME.out
# and NAME.err while it runs, and NAME.code when it has ended. Its output goes to files, so that it does not die with the connection;
# it reaches the operator from there. Nothing is synced: a host that has booted since cannot tell, and says so.

_ledger=''
# The run whose folder that is, in a shell that stays.
_known=''
# Which boot this is, and when we started; a shell reads byte by byte, so once.
_boot=''
_born=0

# When process $1 started, in ticks since boot. A process id alone may belong to someone else by now.
_started() {
	{ read -r _stat <"/proc/$1/stat"; } 2>/dev/null && _since "$_stat"
}

# The same from what the kernel says about a process.
_since() {
	# shellcheck disable=SC2086 # The fields are wanted apart.
	set -- ${1##*) }
	[ $# -ge 20 ] && [ "$1" != Z ] || return 1
	shift 19
	_start=$1
}

# What runs that never came to an end have left behind in the folder $1 goes away, once there are a few of them.
_tidy() {
	_folder=$1
	set -- "$1"/*
	[ $# -lt 10 ] || find "$_folder" -mindepth 1 -maxdepth 1 -mtime +60 -exec rm -rf {} + 2>/dev/null
}

# The folder of the run $1: where an earlier runner made it, or a new one.
_open_ledger() {
	_open runs "$1" || return 1
	_ledger=$_found
	[ -z "$_is_new" ] || _tidy "${_ledger%/*}"
}

# For the shell that stays, in front of a script that runs in a subshell of it: the folder of the run $1 is looked at once, since that
# takes a process. After that only we and root can open it up or replace it.
_know() {
	if [ "$_known" = "$1" ] && _is_still_ours "$_ledger"; then return 0; fi
	_known=''
	if _open_ledger "$1"; then _known=$1; else _ledger=''; fi
}

# Whether the step NAME of the run RUN was ever started here.
# _begun RUN NAME
_begun() {
	_is_still_ours "$_ledger" || _open_ledger "$1" || return 1
	[ -e "$_ledger/$2.intent" ]
}

# Sets _todo for the step NAME of the run RUN: run, wait, collect, doubt, full or fail. SINCE is how many seconds
# ago it was sent for the first time, or empty if this is the first time.
# _enter RUN NAME SINCE
_enter() {
	_todo=fail
	if ! _is_still_ours "$_ledger" && ! _open_ledger "$1"; then
		# What was sent before may have run.
		[ -z "$3" ] || _todo=doubt
		return 0
	fi
	_entry=$_ledger/$2
	if [ -z "$_boot" ]; then
		read -r _boot </proc/sys/kernel/random/boot_id
		_since "$_about" && _born=$_start
	fi
	if [ -n "$3" ] && [ ! -e "$_entry.intent" ]; then
		read -r _up _ </proc/uptime
		if [ "${_up%.*}" -le "$3" ]; then
			_todo=doubt
			return 0
		fi
	fi
	set -C
	# Not `:`, whose failure would end the shell.
	if { printf '' >"$_entry.intent"; } 2>/dev/null; then
		set +C
		_todo=run
		{ printf '%s %s %s %s\n' "$_boot" "$_runner" "$_born" "$_nonce" >"$_entry.intent"; } 2>/dev/null && return 0
		# The file is ours, but there is no room for what belongs in it.
		rm -f "$_entry.intent"
		_todo=full
		return 0
	fi
	set +C
	[ -e "$_entry.intent" ] || return 0
	_todo=doubt
	read -r _its_boot _its_pid _its_start _its_nonce <"$_entry.intent" || return 0
	[ "$_its_boot" = "$_boot" ] && _is_well_formed || return 0
	if [ -s "$_entry.code" ]; then
		_todo=collect
	elif _started "$_its_pid" && [ "$_start" = "$_its_start" ]; then
		_todo='wait'
	elif [ -s "$_entry.code" ]; then
		# It has ended just now.
		_todo=collect
	fi
}

# Whether the words that an entry has are such as we write: they become part of a path and of a program for sed.
_is_well_formed() {
	case $_its_pid:$_its_start in :* | *: | *[!0-9:]*) return 1 ;; esac
	case $_its_nonce in ETCDRUN-*[!0-9a-f]*) return 1 ;; ETCDRUN-*) ;; *) return 1 ;; esac
	[ "${#_its_nonce}" = 40 ]
}

# Sets _code to what the entry says of the end of its command.
_read_code() {
	{ read -r _code <"$_entry.code"; } 2>/dev/null || return 1
	case $_code in '' | *[!0-9]* | ????*) return 1 ;; esac
}

# The command has ended with code $1. A code that cannot be written whole is none: then nobody can tell, later.
_leave_entry() { { printf '%s\n' "$1" >"$_entry.code"; } 2>/dev/null || { printf '' >"$_entry.code"; } 2>/dev/null; }

_show() {
	_show_marks
	_show_output
}

_show_output() {
	[ ! -s "$_entry.out" ] || { _flush && cat "$_entry.out" >&3; }
	_show_errors "$_entry.err"
}

# Runs the program "$@", and sets _code. Shells like dash start it without a copy of themselves, which they would need for a
# body. It has no markers: what is run has changed something.
_run_program() {
	# The last one may have installed another of the same name.
	hash -r
	"$@" </dev/null >"$_entry.out" 2>"$_entry.err" 3>&- 9<&-
	_code=$?
	_leave_entry "$_code"
	_pending="$_pending$_nonce changed
"
	_show_output
}

# A few short ones need no process. A shell loses the zero bytes that sides of a diff may have.
# shellcheck disable=SC2094 # Nothing is written to it here.
_show_marks() {
	_marks='' _mark='' _count=0
	while IFS= read -r _mark; do
		_count=$((_count + 1))
		case $_count$_mark in
		9* | ?"$_nonce before" | ?"$_nonce after" | ?"$_nonce file")
			_flush
			cat "$_entry.marks" >&3
			return
			;;
		esac
		_marks="$_marks$_mark
"
	done 2>/dev/null <"$_entry.marks"
	_pending=$_pending$_marks$_mark
}

# What an earlier runner marked, as if we had. The nonces are on no command line, where all users of the host could read them.
_show_old_marks() {
	sed -f /dev/fd/4 "$_entry.marks" 4<<END >&3
s/$_its_nonce/$_nonce/g
END
}

# Shows the output of the command that process $1 runs as it comes. Each cat goes on where the last one ended.
# It ends with that process at the latest: the ledger may have been removed under it.
_follow() {
	while [ ! -e "$_entry.err" ]; do
		_started "$1" || return 0
		sleep 0.01 2>/dev/null || sleep 1
	done
	exec 5<"$_entry.out" 6<"$_entry.err"
	while [ ! -s "$_entry.code" ] && _started "$1"; do
		cat <&5 >&3
		cat <&6 >&2
		sleep 0.1 2>/dev/null || sleep 1
	done
	cat <&5 >&3
	cat <&6 >&2
	exec 5<&- 6<&-
	_show_marks
}

# The code of the step $1, which has just ended here. Without one nobody knows how it ended.
_code_of() {
	! _read_code || return 0
	_todo=doubt
	_recall "$1" stop
}

# What an earlier runner has done, or is doing, ends the step $1. Behind one in doubt nothing runs, whatever
# $2 says.
_recall() {
	while [ "$_todo" = wait ]; do
		if [ -s "$_entry.code" ]; then
			_todo=collect
		elif ! { _started "$_its_pid" && [ "$_start" = "$_its_start" ]; }; then
			_todo=doubt
			[ ! -s "$_entry.code" ] || _todo=collect
		else
			sleep 0.2 2>/dev/null || sleep 1
		fi
	done
	[ "$_todo" != collect ] || _read_code || _todo=doubt
	case $_todo in
	collect)
		if [ -e "$_entry.marks" ]; then _show_old_marks; else changed; fi
		cat "$_entry.out" >&3
		_show_errors "$_entry.err"
		;;
	doubt)
		_code=1
		set -- "$1" stop
		_ending in_doubt
		_text fail 'it was started, and what became of it is not known'
		;;
	full)
		_code=1
		_text fail "there is no free space on the disk of $_ledger, so nothing was run"
		;;
	*)
		_code=1
		_text fail "$(_not_open runs), so nothing was run"
		;;
	esac
	_end "$1" "$_code" "$2"
}
