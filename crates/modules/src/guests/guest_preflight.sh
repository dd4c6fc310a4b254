# shellcheck shell=sh disable=SC2034,SC2154
# What a hypervisor has for guests. Each of "$@" is a question: `volumes POOL`, `file PATH`, `ping IP`, `fsync FOLDER`. Answers
# are lines of words.

domains() {
    for domain in $(vir list --all --name); do
        printf '%s %s' "$domain" "$(vir domstate "$domain" | tr ' ' '-')"
        vir domiflist "$domain" | while read -r _ _ _ _ mac; do printf ' %s' "$mac"; done
        printf '\n'
    done
}

pools() {
    for pool in $(vir pool-list --all --name); do
        read_pool "$pool" || continue
        free=''
        if [ -d "$pool_path" ]; then free=$(df -Pk "$pool_path" | while read -r _ _ _ free _; do printf '%s\n' "$free"; done | tail -n 1); fi
        printf '%s %s %s\n' "$pool" "${free:--}" "$pool_path"
    done
}

networks() {
    for network in $(vir net-list --all --name); do
        field Active "$(vir net-info "$network")"
        mode=$(vir net-dumpxml "$network" | sed -n "s/.*<forward.* mode='\([^']*\)'.*/\1/p" | head -n 1)
        printf '%s %s %s %s\n' "$network" "$(vir net-uuid "$network")" "$value" "${mode:-isolated}"
    done
}

links() {
    for link in /sys/class/net/*; do
        kind="link"
        if [ -d "$link/bridge" ]; then kind=bridge; fi
        printf '%s %s\n' "${link##*/}" "$kind"
    done
}

memory() {
    while read -r name amount _; do
        case $name in MemAvailable:) printf '%s' "$amount"; return ;; esac
    done </proc/meminfo
}

volumes() {
    read_pool "$1" || return
    vir vol-list "$1" 2>/dev/null | while read -r name _; do printf 'volume %s %s\n' "$1" "$name"; done
}

# How long a write of etcd's usual size takes until it is on disk. A plan does not find out: that takes a file.
fsync() {
    seconds=''
    mutate measure "$1"
    printf 'fsync %s %s\n' "$1" "${seconds:--}"
}

measure() {
    folder=$1
    while [ ! -d "$folder" ]; do folder=${folder%/*} folder=${folder:-/}; done
    probe=$folder/.etcdrun-fsync-$$
    seconds=$(timeout 10 dd if=/dev/zero of="$probe" bs=2300 count=100 oflag=dsync 2>&1 | sed -n 's/.*, \([0-9.e-]*\) s\(econds\)*,.*/\1/p')
    rm -f "$probe"
}

need_libvirt
result domains "$(domains)"
result pools "$(pools)"
result networks "$(networks)"
result links "$(links)"
result memory "$(memory)"
result security "$(vir capabilities | grep -o apparmor | head -n 1)"
result cpus "$(getconf _NPROCESSORS_ONLN)"
result last_cpu "$(sed 's/.*[-,]//' /sys/devices/system/cpu/online)"
answers=$(
    for question in "$@"; do
        # shellcheck disable=SC2086 # Pools and addresses are words; a path is what is behind the first blank.
        case $question in
        'volumes '*) set -- $question; volumes "$2" ;;
        'file '*) if [ -r "${question#file }" ]; then printf '%s\n' "$question"; fi ;;
        'ping '*) set -- $question; (if have ping && ping -q -c 1 -W 1 "$2" >/dev/null 2>&1; then printf 'ping %s\n' "$2"; fi) & ;;
        'fsync '*) fsync "${question#fsync }" ;;
        esac
    done
    wait
)
result answers "$answers"
