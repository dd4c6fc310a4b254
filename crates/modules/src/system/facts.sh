# shellcheck shell=sh disable=SC2154
# Reads files with the shell itself; `uname` is the only program that always runs.

# Sets $json to the value as a JSON string, or to null if it is empty.
to_json() {
    json='' rest=$1
    [ "$rest" ] || { json=null; return; }
    while :; do
        case $rest in
        *[\\\"]*)
            head=${rest%%[\\\"]*}
            rest=${rest#"$head"}
            json=$json$head\\${rest%"${rest#?}"}
            rest=${rest#?}
            ;;
        *) json=\"$json$rest\"; return ;;
        esac
    done
}

# Adds one member to the JSON object in $object.
add() {
    to_json "$2"
    add_json "$1" "$json"
}

add_json() {
    object=$object${object:+,}\"$1\":$2
}

# Sets $line to the first line of a file, or to nothing.
first_line() {
    line=
    if [ -r "$1" ]; then IFS= read -r line <"$1" || :; fi
}

system() {
    for file in /etc/os-release /usr/lib/os-release; do
        # shellcheck source=/dev/null
        if [ -r "$file" ]; then . "$file"; break; fi
    done
    family=${ID-}
    for like in ${ID-} ${ID_LIKE-}; do
        case $like in
        debian | ubuntu) family=debian; break ;;
        rhel | fedora | centos) family=redhat; break ;;
        suse | opensuse*) family=suse; break ;;
        alpine | arch) family=$like; break ;;
        esac
    done
    object=
    add id "${ID:-linux}"
    add version "${VERSION_ID-}"
    add family "${family:-linux}"
    add name "${PRETTY_NAME:-${NAME:-Linux}}"
    os="{$object}"
}

# 0-3,8 is five.
count_cpus() {
    first_line /sys/devices/system/cpu/online
    cpus=0 rest=${line:-0},
    while [ "$rest" ]; do
        range=${rest%%,*} rest=${rest#*,}
        cpus=$((cpus + ${range#*-} - ${range%-*} + 1))
    done
}

count_memory() {
    memory=0
    while read -r key value _; do
        if [ "$key" = MemTotal: ]; then memory=$((value / 1024)); break; fi
    done </proc/meminfo
}

full_name() {
    fqdn=$hostname
    [ -r /etc/hosts ] || return 0
    while read -r _ first others; do
        case " $first $others " in
        *" $hostname "*) ;;
        *) continue ;;
        esac
        case $first in "$hostname".*) fqdn=$first; return ;; esac
    done </etc/hosts
}

find_service_manager() {
    if [ -d /run/systemd/system ]; then
        service_manager=systemd
    elif [ -d /run/openrc ]; then
        service_manager=openrc
    else
        first_line /proc/1/comm
        service_manager=$line
    fi
}

find_package_manager() {
    package_manager=
    for pair in apt-get:apt dnf:dnf yum:yum zypper:zypper apk:apk pacman:pacman; do
        if have "${pair%:*}"; then package_manager=${pair#*:}; return; fi
    done
}

find_virtualization() {
    virtualization=none
    if [ -e /.dockerenv ]; then virtualization=docker; return; fi
    if [ -e /run/.containerenv ]; then virtualization=podman; return; fi
    first_line /run/systemd/container
    if [ "$line" ]; then virtualization=$line; return; fi
    first_line /sys/class/dmi/id/sys_vendor; dmi=$line
    first_line /sys/class/dmi/id/product_name; dmi="$dmi $line"
    case $dmi in
    *QEMU* | *KVM* | *"Red Hat"* | *OpenStack*) virtualization=kvm; return ;;
    *VMware*) virtualization=vmware; return ;;
    *VirtualBox* | *innotek*) virtualization=virtualbox; return ;;
    *Xen*) virtualization=xen; return ;;
    *Microsoft*Virtual*) virtualization=hyperv; return ;;
    esac
    while read -r key flags; do
        case $key in flags | Features) ;; *) continue ;; esac
        case " $flags " in *" hypervisor "*) virtualization=guest ;; esac
        return 0
    done </proc/cpuinfo
}

# The kernel prints route addresses as 32-bit numbers in its own byte order, little-endian here.
find_address() {
    ipv4='' interface='' networks=''
    [ -r /proc/net/route ] && [ -r /proc/net/fib_trie ] || return 0
    while read -r name destination _ _ _ _ _ mask _; do
        [ "$destination$mask" = 0000000000000000 ] && interface=${interface:-$name}
    done </proc/net/route
    [ "$interface" ] || return 0
    while read -r name destination _ _ _ _ _ mask _; do
        [ "$name" = "$interface" ] && [ "$mask" != 00000000 ] && networks="$networks $destination/$mask"
    done </proc/net/route
    address=
    while read -r mark value _; do
        case $mark$value in
        \|--*) address=$value ;;
        /32host)
            if is_in_networks "$address"; then ipv4=$address; return; fi
            ;;
        esac
    done </proc/net/fib_trie
}

is_in_networks() {
    case $1 in 127.* | "") return 1 ;; esac
    a=${1%%.*} rest=${1#*.}
    b=${rest%%.*} rest=${rest#*.}
    number=$((a | b << 8 | ${rest%%.*} << 16 | ${rest#*.} << 24))
    for network in $networks; do
        [ $((number & 0x${network#*/})) -eq $((0x${network%/*})) ] && return 0
    done
    return 1
}

find_user() {
    uid=0
    while read -r key value _; do
        if [ "$key" = Uid: ]; then uid=$value; break; fi
    done </proc/self/status
    while IFS=: read -r user _ number _; do
        [ "$number" = "$uid" ] && return
    done </etc/passwd
    user=$(id -un) || user=$uid
}

system
count_cpus
count_memory
first_line /proc/sys/kernel/hostname; hostname=$line
full_name
find_service_manager
find_package_manager
find_virtualization
find_address
find_user

object=
add_json os "$os"
add arch "$(uname -m)"
first_line /proc/sys/kernel/osrelease; add kernel "$line"
add hostname "$hostname"
add fqdn "$fqdn"
first_line /proc/sys/kernel/random/boot_id; add boot_id "$line"
add_json cpus "$cpus"
add_json memory_mb "$memory"
add service_manager "$service_manager"
add package_manager "$package_manager"
add virtualization "$virtualization"
add ipv4 "$ipv4"
add user "$user"
add_json uid "$uid"
result_json facts "{$object}"
