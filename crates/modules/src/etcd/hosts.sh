# shellcheck shell=sh disable=SC2154
# What a member's host tells of itself: its clock, room on its disks, the server that is to run, the one that runs.

# Nanoseconds; a date without them leaves the letter.
now=$(date +%s%N)
case $now in
*[!0-9]*)
    now=$(date +%s)
    result_bool coarse 1
    now=${now}000000000
    ;;
esac
result clock "$now"

# The free bytes where a path is, or will be.
free_at() {
    folder=$1
    while [ ! -d "$folder" ] && [ "$folder" != / ]; do
        folder=${folder%/*}
        folder=${folder:-/}
    done
    free=$(df -Pk "$folder" | while read -r _ _ _ available _; do
        case $available in *[!0-9]* | '') ;; *) echo "$available" ;; esac
    done)
}
free_at "$arg_data_dir"
if [ "$free" ]; then result data_free "$free"; fi
if [ "$arg_server" ]; then
    free_at "$arg_server"
    if [ "$free" ]; then result server_free "$free"; fi
    if [ -f "$arg_server" ]; then
        sum=$(sha256sum < "$arg_server") || fail "cannot read $arg_server"
        sum=${sum%% *}
        # Out of a tarball: the catalogue has the sum of that, and a note beside the server has both.
        if [ -f "$arg_server.release" ] && read -r tarball server < "$arg_server.release" && [ "$server" = "$sum" ]; then
            sum=$tarball
        fi
        result sha256 "$sum"
    fi
fi

have systemctl || exit 0

peers=$(next_peers)
if [ "$peers" ]; then result next_peers "$peers"; fi

pid='' state=''
properties=$(systemctl show -p MainPID -p ActiveState -- etcd.service 2> /dev/null)
while IFS='=' read -r key value; do
    case $key in
    MainPID) pid=$value ;;
    ActiveState) state=$value ;;
    esac
done << PROPERTIES
$properties
PROPERTIES
case $state in inactive | failed) result_bool stopped 1 ;; esac
case $pid in '' | 0) exit 0 ;; esac
said=$(tr '\0' '\n' < "/proc/$pid/environ" 2> /dev/null; tr '\0' '\n' < "/proc/$pid/cmdline" 2> /dev/null)
case $said in
*ETCD_STRICT_RECONFIG_CHECK=false* | *strict-reconfig-check=false*) result strict no ;;
?*) result strict yes ;;
esac
clients=$(printf '%s\n' "$said" | value_of ETCD_LISTEN_CLIENT_URLS)
if [ "$clients" ]; then result client_urls "$clients"; fi
