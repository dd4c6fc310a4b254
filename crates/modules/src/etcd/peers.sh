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

# Where it would listen for the other members if it started now: what is on its command line, else the last file that says so.
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
        if [ -r "$file" ]; then cat -- "$file"; fi
    done | value_of ETCD_LISTEN_PEER_URLS
}

# The same for a start that first puts into place what waits beside these files. A unit that waits is one of ours: it has its
# settings in a file.
peers_after_taking() {
    is_new_unit='' settings=''
    for file; do
        case $file in
        *.service) if [ -f "$file.next" ]; then is_new_unit=1; fi ;;
        *.env) settings=$file ;;
        esac
    done
    if [ "$settings" ] && [ -f "$settings.next" ]; then
        value_of ETCD_LISTEN_PEER_URLS < "$settings.next"
    elif [ "$settings" ] && [ "$is_new_unit" ]; then
        value_of ETCD_LISTEN_PEER_URLS < "$settings"
    else
        next_peers
    fi
}
