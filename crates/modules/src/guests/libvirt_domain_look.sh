# shellcheck shell=sh disable=SC2034,SC2154
# What is there of a domain, and of what it is to be made of. Each of "$@" is a disk, `volume POOL NAME` or `path PATH`, or
# a network by its name or UUID, `network NAME`.

look_at_domain() {
    xml=$(vir dumpxml --inactive "$arg_name" 2>/dev/null) || { result state absent; return; }
    result xml "$xml"
    state=$(vir domstate "$arg_name") || fail "cannot inspect the domain $arg_name"
    result state "$state"
    info=$(vir dominfo "$arg_name") || fail "cannot inspect the domain $arg_name"
    field Autostart "$info"
    result autostart "$value"
    case $state in 'shut off' | crashed) return ;; esac
    live=$(vir dumpxml "$arg_name") || return 0
    result live_xml "$live"
}

find_volume() {
    path=$(vir vol-path --pool "$1" "$2" 2>/dev/null) || path=''
    if [ -z "$path" ] && read_pool "$1"; then
        # The pool may not have noticed it yet.
        if [ -e "$pool_path/$2" ] || [ "$CHECK" ]; then path=$pool_path/$2; fi
    fi
    if [ -z "$path" ]; then
        [ "$CHECK" ] || fail "there is no volume $2 in the pool $1"
        path="/(pool $1)/$2"
    fi
}

find_network() {
    network=$(vir net-name "$1" 2>/dev/null) || network=''
    if [ -z "$network" ] && vir net-info "$1" >/dev/null 2>&1; then network=$1; fi
    if [ -z "$network" ]; then
        # shellcheck disable=SC2046 # Names of networks are words.
        as_list $(vir net-list --all --name)
        [ "$CHECK" ] || fail "there is no network $1 on this host; there are: $list"
        network=$1
    fi
}

need_libvirt
look_at_domain
number=0
for part in "$@"; do
    # shellcheck disable=SC2086 # Names are words; a path is what is behind the first blank.
    case $part in
    'volume '*) set -- $part; find_volume "$2" "$3"; result "part$number" "$path" ;;
    'path '*) result "part$number" "${part#path }" ;;
    'network '*) find_network "${part#network }"; result "part$number" "$network" ;;
    esac
    number=$((number + 1))
done
if [ "$arg_virt" ]; then
    probe_kvm
    if [ -z "$virt" ]; then
        unknown "whether KVM works on this hypervisor is found out when a guest is made"
        exit 0
    fi
    result virt "$virt"
    result virt_reason "$virt_reason"
fi
