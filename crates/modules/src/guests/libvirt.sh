# shellcheck shell=sh disable=SC2034,SC2154
# Talks to libvirt. In front of the payloads that do.

vir() { virsh -q -c "${LIBVIRT_DEFAULT_URI:-qemu:///system}" "$@"; }

need_libvirt() {
    have virsh || fail "virsh is not installed on this host; on Debian it is in libvirt-clients"
    vir uri >/dev/null || fail "libvirt does not answer on this host; check that libvirtd runs, and that this user may connect to it"
}

# field NAME TEXT: sets $value to what stands behind `NAME:` in the output of one of virsh's info commands.
field() {
    value=$(printf '%s\n' "$2" | sed -n "s/^$1: *//p")
}

# Sets $list to the names in the words given, one blank apart.
as_list() {
    list=''
    for word in "$@"; do list="$list${list:+, }$word"; done
    list=${list:-none}
}

# Sets $pools to the names of all pools that there are.
name_pools() {
    # shellcheck disable=SC2046 # Names of pools are words.
    as_list $(vir pool-list --all --name)
    pools=$list
}

# read_pool NAME: sets $pool_type and $pool_path; false if there is no such pool.
read_pool() {
    xml=$(vir pool-dumpxml "$1" 2>/dev/null) || return 1
    pool_type=$(printf '%s\n' "$xml" | sed -n "s/^<pool type='\([^']*\)'.*/\1/p")
    pool_path=$(printf '%s\n' "$xml" | sed -n 's:^ *<path>\(.*\)</path>$:\1:p')
    case $pool_path in *'&'*) fail "the pool $1 has a path with characters that are not supported: $pool_path" ;; esac
}

# Ends with the names that exist.
no_such_pool() {
    name_pools
    fail "there is no pool $1 on this host; there are: $pools"
}

need_pool() {
    read_pool "$1" || no_such_pool "$1"
    case $pool_type in
    dir | fs | netfs) ;;
    *) fail "the pool $1 is of the type $pool_type; volumes are created only in pools that are directories: dir, fs and netfs" ;;
    esac
}
