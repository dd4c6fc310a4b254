# shellcheck shell=sh
# Where a member listens for the others, as the settings on its disk say.

# value_of NAME: what a variable of etcd is in lines like NAME=value; the last one counts. Quotes of systemd go.
value_of() {
    found=''
    while IFS= read -r line; do
        case $line in "$1="*) found=${line#*=} ;; esac
    done
    found=${found#[\"\']}
    printf '%s' "${found%[\"\']}"
}

# Where it would listen for the other members if it started now: what is on its command line, else the last file that says so. With
# .next, what waits beside a file is in its place.
next_peers() {
    start=$(systemctl show -p ExecStart --value -- etcd.service 2> /dev/null)
    case $start in
    *--listen-peer-urls[=\ ]*)
        start=${start#*--listen-peer-urls}
        printf '%s' "${start#[= ]}" | while read -r urls _; do printf '%s' "$urls"; done
        return 0
        ;;
    esac
    systemctl show -p EnvironmentFiles --value -- etcd.service 2> /dev/null | while read -r file _; do
        if [ "$1" ] && [ -f "$file$1" ]; then file=$file$1; fi
        if [ -r "$file" ]; then cat -- "$file"; fi
    done | value_of ETCD_LISTEN_PEER_URLS
}
