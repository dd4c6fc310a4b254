# shellcheck shell=sh
# Sent behind the prelude where a segment has a step in check mode, which calls _shut before its body. From then
# on whatever could change the host is shut off, except through `mutate`, which does nothing there: a body that
# forgets it fails, rather than changing something in a plan. What a redirection writes cannot be caught here; a
# test looks for those.

_tools='rm rmdir mv cp ln mkdir mktemp touch chmod chown chgrp tee dd install truncate mount umount useradd usermod
userdel groupadd groupmod groupdel chpasswd mkswap resize2fs e2fsck restorecon reboot shutdown curl wget tar unzip
sync tmp_dir'

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
