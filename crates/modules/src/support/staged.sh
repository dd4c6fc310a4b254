# shellcheck shell=sh disable=SC2034,SC2154
# Files that a unit reads when it starts. While it runs, a new text waits beside the file, as FILE.next: a crash or a boot finds the
# text that the unit has started with before.

# Whether the unit runs that a file is staged for.
is_in_use() {
    if [ -z "$arg_stage_for" ] || ! have systemctl; then return 1; fi
    case $(systemctl show -p ActiveState --value -- "$arg_stage_for" 2> /dev/null) in
    active | reloading | refreshing) return 0 ;;
    esac
    return 1
}

# is_elsewhere FILE: whether the new text has another address than FILE, where etcd has to be told before the unit starts at it.
is_elsewhere() {
    if [ -z "$arg_stage_for" ] || [ -z "${arg_address_line-}" ]; then return 1; fi
    was=$(grep "^$arg_address_line=" < "$1") || return 1
    [ "$was" != "$(printf '%s\n' "$arg_content" | grep "^$arg_address_line=")" ]
}

# drop_staged FILE: what waits beside it is not wanted any more.
drop_staged() {
    if [ -z "$arg_stage_for" ] || [ ! -e "$1.next" ]; then return 0; fi
    changed
    mutate rm -f -- "$1.next" || fail "cannot remove $1.next"
}

# take_staged FILE: what waits beside it goes into place.
take_staged() {
    if [ ! -f "$1.next" ]; then return 0; fi
    # It is newer than the server that runs, whenever it was written: should the restart fail to come, the next run makes up for it.
    mutate touch -- "$1.next"
    mutate mv -f -- "$1.next" "$1" || fail "cannot replace $1 by $1.next"
    if have restorecon; then mutate restorecon "$1" || note "cannot restore the security context of $1"; fi
}
