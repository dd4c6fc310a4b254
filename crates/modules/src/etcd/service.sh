# shellcheck shell=sh disable=SC2154
# The unit of etcd: whether it runs, and whether it has read what it should; "$@" are files that it reads at its start.

unit=$arg_unit

# Sets $pid and $started: the server that runs, and since when, in microseconds. Older systemds only tell the second: what was
# written in it counts as read.
read_server() {
    pid='' started='' format=+%s%6N
    properties=$(systemctl show -p MainPID -p ExecMainStartTimestamp --timestamp=us+utc -- "$unit" 2> /dev/null) || {
        properties=$(systemctl show -p MainPID -p ExecMainStartTimestamp -- "$unit")
        format=+%s999999
    }
    while IFS='=' read -r key value; do
        case $key in
        MainPID) pid=$value ;;
        ExecMainStartTimestamp) started=$value ;;
        esac
    done << PROPERTIES
$properties
PROPERTIES
    # An empty date is this morning.
    started=$(date -d "${started:-never}" "$format" 2> /dev/null) || started=''
    case $started in
    *[!0-9]*) started='' ;;
    esac
}

# Whether nobody is about to start it. While a machine boots, its turn is still to come.
is_stopped() {
    [ "$active_state" = inactive ] || return 1
    case $(systemctl show -p Job --value -- "$unit"):$(systemctl is-system-running 2> /dev/null) in
    [1-9]* | *:starting | *:initializing) return 1 ;;
    esac
}

# Sets $changes to when the files were changed, a line each, in microseconds: files are written and servers started within one
# second.
read_changes() {
    changes=$(stat -L -c %.6Y -- "$@") || fail "cannot inspect all of $*"
    case $changes in
    *.??????) ;;
    *) changes=$(stat -L -c %Y.000000 -- "$@") ;;
    esac
}

# Sets $newer to a file that is newer than the server that runs, or that is starting; empty if none is.
find_newer() {
    newer=''
    read_server
    if [ "$arg_server" ] && running=$(readlink "/proc/$pid/exe" 2> /dev/null) && [ "${running% (deleted)}" != "$arg_server" ]; then
        newer=$arg_server
        return 0
    fi
    if waits "$@"; then
        newer=$file
        return 0
    fi
    if [ -z "$started" ] || [ $# = 0 ]; then return 0; fi
    read_changes "$@"
    for changed_at in $changes; do
        if [ "${changed_at%.*}${changed_at#*.}" -gt "$started" ]; then
            newer=$1
            return 0
        fi
        shift
    done
}

# Whether something waits for the start.
waits() {
    for file; do
        if [ -f "$file.next" ]; then return 0; fi
    done
    return 1
}

# Says whether the server has ever run with the settings among these files, if they say where.
find_data() {
    for file; do
        case $file in *.env) ;; *) continue ;; esac
        folder=$(value_of ETCD_DATA_DIR < "$file" 2> /dev/null)
        if [ -z "$folder" ]; then continue; fi
        if [ -d "$folder/member" ]; then result_bool has_data 1; else result_bool has_data ''; fi
        return 0
    done
}

# Puts into place what waits for the start.
take_all() {
    is_new_unit='' starts_at_boot=''
    if is_enabled; then starts_at_boot=true; fi
    for file; do
        case $file in *.service) if [ -f "$file.next" ]; then is_new_unit=1; fi ;; esac
        take_staged "$file"
        # A key without its certificate is good for nothing, and etcd reads both at each handshake.
        case $file in *.key) if [ "$arg_certificate" ]; then take_staged "$arg_certificate"; fi ;; esac
    done
    # An earlier run may have died in between.
    if [ -z "$is_new_unit" ] && [ "$(systemctl show -p NeedDaemonReload --value -- "$unit")" != yes ]; then return 0; fi
    mutate systemctl daemon-reload || fail "systemd cannot reload its configuration"
    # One that did without [Install] is not enabled by having it.
    read_unit
    set_enabled "$starts_at_boot"
}

need_systemd
read_unit
case $arg_action in
look)
    if [ "$load_state" = not-found ]; then
        result state missing
        exit 0
    fi
    result state "$active_state"
    peers=$(peers_after_taking "$@")
    if [ "$peers" ]; then result next_peers "$peers"; fi
    if [ "$active_state" = active ]; then
        find_newer "$@"
        if [ "$newer" ]; then result newer "$newer"; fi
        peers=$(tr '\0' '\n' < "/proc/$pid/environ" 2> /dev/null | value_of ETCD_LISTEN_PEER_URLS)
    else
        peers=$(next_peers)
        find_data "$@"
    fi
    if [ "$peers" ]; then result peers "$peers"; fi
    ;;
start)
    # One that starts over and over is not on its way, and one that is on its way with what it had before serves no client yet.
    # What it did before must not count against this start: systemd allows only so many in a while.
    newer=''
    if [ "$active_state" = activating ]; then find_newer "$@"; fi
    if [ "$sub_state" = auto-restart ] || [ "$active_state" = failed ] || [ "$newer" ]; then
        mutate systemctl stop -- "$unit"
        read_unit
    fi
    if ! is_running; then
        take_all "$@"
        mutate systemctl reset-failed -- "$unit" 2> /dev/null
    fi
    set_state started
    report_unit
    ;;
restart)
    take_all "$@"
    mutate systemctl reset-failed -- "$unit" 2> /dev/null
    set_state restarted
    report_unit
    ;;
trouble)
    result state "$active_state"
    result sub_state "$sub_state"
    if [ "$active_state" = failed ] || [ "$sub_state" = auto-restart ] || is_stopped; then
        said=$(journalctl --unit "$unit" --lines 5 --output cat --no-pager 2> /dev/null)
        result said "$said"
    fi
    ;;
esac
