# shellcheck shell=sh disable=SC2154
# What a step must leave as it was: members of clusters that run here. Sent where a segment has such a step.

# One line for each member that runs: its unit and which start of it this is, or its guest and which domain that is.
# A unit that is about to be restarted counts as gone.
_running() {
	if [ -n "$_unit" ]; then
		_shown=$(systemctl show -p ActiveState -p InvocationID -p Job "$_unit" 2>/dev/null)
		case $_shown in
		*Job=[1-9]*) ;;
		*ActiveState=active*)
			_shown=${_shown#*InvocationID=}
			printf '%s %s\n' "$_unit" "${_shown%%[!0-9a-f]*}"
			;;
		esac
	fi
	case "$_guests" in '') return ;; esac
	if [ "$_by_pid" ]; then
		for _name in $_guests; do
			_id=$(cat "/run/libvirt/qemu/$_name.pid" 2>/dev/null) && kill -0 "$_id" 2>/dev/null && printf '%s %s\n' "$_name" "$_id"
		done
		return
	fi
	# A guest that is paused serves nobody.
	_domains | while read -r _id _name _shown; do
		case "$_guests:$_shown" in
		*" $_name "*:paused* | *" $_name "*:pmsuspended* | *" $_name "*:crashed*) ;;
		*" $_name "*) printf '%s %s\n' "$_name" "$_id" ;;
		esac
	done
}

_domains() { virsh -q -r -c "${LIBVIRT_DEFAULT_URI:-qemu:///system}" list 2>/dev/null; }

# _watch UNIT GUEST...
_watch() {
	_unit=$1
	shift
	_guests=${1:+" $* "}
	# Without libvirt its notes tell who runs. How it was asked first, it is asked again.
	_by_pid=''
	if [ -n "$_guests" ] && ! _domains >/dev/null; then _by_pid=1; fi
	_seen=$(_running)
}

# Ends the step, whose code is $1, unless a member is not the one it was. Then nothing behind it runs either.
_kept() {
	_now="
$(_running)
"
	_gone=''
	while read -r _name _id; do
		case $_now in
		*"
$_name $_id
"*) ;;
		*) [ -z "$_name" ] || _gone="$_gone${_gone:+, }$_name" ;;
		esac
	done <<END
$_seen
END
	[ -n "$_gone" ] || exit "$1"
	{ : >"$_stop"; } 2>/dev/null
	_ending member_lost
	fail "$_gone was stopped or restarted by this"
}
