# shellcheck shell=sh
# Sent behind the prelude where a segment has a step in check mode, which calls _shut before its body. From then
# on whatever could change the host is shut off, except through `mutate`, which does nothing there: a body that
# forgets it fails, rather than changing something in a plan. What a redirection writes cannot be caught here, nor a
# program with a dash in its name, which no function can have; a test looks for those.

_tools='rm rmdir mv cp ln mkdir mktemp touch chmod chown chgrp tee dd install truncate mount umount useradd usermod
userdel groupadd groupmod groupdel chpasswd mkswap resize2fs e2fsck restorecon reboot shutdown curl wget tar unzip
genisoimage xorriso sync tmp_dir'

_refuse() {
	fail "check mode was about to run $*, which is a mistake in etcdrun; nothing was changed"
}

# shellcheck disable=SC2317 # A body calls them.
_shut() {
	for _tool in $_tools; do
		eval "$_tool() { _refuse $_tool \"\$@\"; }"
	done
	systemctl() {
		case $1 in
		show | cat | status | is-*) command systemctl "$@" ;;
		*) _refuse systemctl "$@" ;;
		esac
	}
	# What a function calls by its name is shut off; what another program starts is not.
	timeout() {
		for _word; do
			for _tool in $_tools; do
				[ "$_word" != "$_tool" ] || _refuse timeout "$@"
			done
		done
		command timeout "$@"
	}
	virsh() {
		_skip=''
		for _word; do
			case $_skip$_word in
			-c) _skip=1 ;;
			-*) ;;
			1*) _skip='' ;;
			*) break ;;
			esac
		done
		case $_word in
		list | *-list | dom*list | *info | *dumpxml | domstate | domuuid | net-uuid | net-name | vol-path | uri) ;;
		*capabilities | qemu-agent-command) ;;
		*) _refuse virsh "$@" ;;
		esac
		command virsh "$@"
	}
	# A function would count as the program of its name.
	have() {
		_dirs=$PATH:
		while [ "$_dirs" ]; do
			if [ -x "${_dirs%%:*}/$1" ]; then return 0; fi
			_dirs=${_dirs#*:}
		done
		return 1
	}
}
