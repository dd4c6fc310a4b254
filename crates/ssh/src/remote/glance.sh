# shellcheck shell=sh
# Sent behind the prelude where several steps in a row are about a file each: what these are like is found out for all of
# them at once, in two processes instead of two for each.

_newline='
'

# Looks at files, "$@", each as SIZE:PATH with no blank or special character in it. The sum is taken of those that have this size.
# shellcheck disable=SC2086 # One word a file.
_glance() {
	_glances='' _sums='' _files=''
	for _word; do
		[ ! -f "${_word#*:}" ] || _files="$_files ${_word#*:}"
	done
	[ -n "$_files" ] || return 0
	_glances=$_newline$(stat -L -c '%n %d:%i|%u|%g|%a|%s|%U|%G' $_files 2>/dev/null)
	_files='' _inodes=' '
	for _word; do
		_attributes_of "${_word#*:}" || continue
		# A file with two names may change under the one while it is known by the other.
		case $_inodes in *" $_inode "*)
			_glances=''
			return 0
			;;
		esac
		_inodes="$_inodes$_inode "
		case $_attributes in *'|'*'|'*"|${_word%%:*}|"*'|'*) _files="$_files ${_word#*:}" ;; esac
	done
	[ -z "$_files" ] || _sums=$_newline$(sha256sum $_files 2>/dev/null)$_newline
}

# Sets _attributes to the attributes of the file $1, if we have looked at it.
_attributes_of() {
	case $_glances in *"$_newline$1 "*) ;; *) return 1 ;; esac
	_attributes=${_glances#*"$_newline$1 "}
	_attributes=${_attributes%%"$_newline"*}
	_inode=${_attributes%%|*}
	_attributes=${_attributes#*|}
}

# Sets _sum to the checksum of the file $1, if we have it.
_sum_of() {
	case $_sums in *"  $1$_newline"*) ;; *) return 1 ;; esac
	_sum=${_sums%%"  $1$_newline"*}
	_sum=${_sum##*"$_newline"}
}
