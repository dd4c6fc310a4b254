# shellcheck shell=sh disable=SC2154
# What a member still has, when its cluster has lost its majority; and a server on a copy of it, or on any other folder, for as long
# as it takes to read that. The data itself is not touched.

data=${arg_data_dir%/}
unit=etcd-salvage.service

# Beside a folder that is a mount point there is another file system, which may have less room.
find_copy() {
    above=${data%/*}
    copy=$data.salvage
    if [ "${arg_folder-}" ]; then
        copy=$arg_folder
        return 0
    fi
    if [ -d "$data" ] && [ "$(stat -c %d "$data")" != "$(stat -c %d "${above:-/}")" ]; then
        copy=$data/salvage
    fi
}

# One that waits for others runs; one that falls over and over does not.
runs() {
    have systemctl || return 1
    case $(systemctl show -p ActiveState --value etcd.service 2> /dev/null) in
    active) return 0 ;;
    activating) [ "$(systemctl show -p SubState --value etcd.service)" = start ] ;;
    *) return 1 ;;
    esac
}

look() {
    if runs; then result_bool runs 1; fi
    for note in "$data".restored-*; do
        if [ -e "$note" ]; then result unfinished "$note"; fi
    done
    last=''
    before=''
    for log in "$data"/member/wal/*.wal; do
        if [ -e "$log" ]; then
            before=$last
            last=$log
        fi
    done
    [ "$last" ] || return 0
    result log "$last"
    result before "$before"
    size=$(wc -c < "$data/member/snap/db" 2> /dev/null) || size=0
    result_int size "$size"
    written=$(date -u -r "$last" +%Y-%m-%dT%H:%M:%SZ) && result written "$written"
}

begin() {
    if runs; then return 0; fi
    changed
    systemctl stop etcd.service 2> /dev/null
    systemctl reset-failed etcd.service 2> /dev/null
    systemctl start --no-block etcd.service || fail "cannot start etcd"
}

stop_server() {
    systemctl stop "$unit" 2> /dev/null
    systemctl reset-failed "$unit" 2> /dev/null
    return 0
}

end() {
    stop_server
    rm -rf "$copy" || fail "cannot remove $copy"
    if [ "${arg_start-}" ]; then systemctl start --no-block etcd.service || fail "cannot start etcd again"; fi
}

# It was without a majority, so nobody misses it while it is down.
take_copy() {
    arg_start=''
    end
    changed
    systemctl stop etcd.service || fail "cannot stop etcd"
    free=$(df -Pk "${copy%/*}" | while read -r _ _ _ free _; do case $free in *[!0-9]*) ;; *) echo "$free" ;; esac; done)
    used=$(du -sk "$data/member") || fail "cannot read $data/member"
    used=${used%%[!0-9]*}
    # What the server on the copy writes goes there as well: a log of 64 MiB, and the next one.
    needed=$((used + 131072))
    [ "${free:-0}" -gt "$needed" ] || fail "${copy%/*} has ${free:-0} KiB left, and a copy of the data needs $needed"
    mkdir -m 0700 "$copy" || fail "cannot create $copy"
    cp -a "$data/member" "$copy/member" || fail "cannot copy $data/member"
    chown -h "$arg_user:" "$copy" || fail "cannot change the owner of $copy to $arg_user"
    result folder "$copy"
}

# The record that came to $copy/record goes behind the last one of the log; what was behind that was never written to its end.
append() {
    log=$copy/member/wal/$arg_log
    dd if="$copy/record" of="$log" bs=1 seek="$arg_end" 2> /dev/null || fail "cannot write $log"
    rm -f "$copy/record"
}

# etcd takes no flag for what its environment says already, so this is its own environment with some of it exchanged. It reaches
# nobody: those whom its data names must not hear of it.
start() {
    if [ "$CHECK" ]; then return 0; fi
    # It may be there from somebody who was killed.
    stop_server
    server=$(systemctl show -p ExecStart --value etcd.service)
    server=${server#*path=}
    server=${server%% *}
    [ -x "$server" ] || fail "there is no etcd binary $server"
    client=https://127.0.0.1:$arg_port
    # Who connects as a peer has to show a certificate of an authority that has no key any more, so nobody does.
    peer=https://127.0.0.1:$arg_peer_port
    others='DATA_DIR|WAL_DIR|FORCE_NEW_CLUSTER|LISTEN_[A-Z_]*|ADVERTISE_CLIENT_URLS|INITIAL_[A-Z_]*|DISCOVERY[A-Z_]*|PEER_[A-Z_]*'
    force=false
    if [ "${arg_force-}" ]; then force=true; fi
    umask 077
    {
        grep -vE "^ETCD_($others)=" "$arg_environment"
        sed -nE 's/^ETCD_((CERT|KEY)_FILE=)/ETCD_PEER_\1/p' "$arg_environment"
        printf 'ETCD_%s\n' "DATA_DIR=$copy" "FORCE_NEW_CLUSTER=$force" \
            "LISTEN_CLIENT_URLS=$client" "ADVERTISE_CLIENT_URLS=$client" \
            "LISTEN_PEER_URLS=$peer" "INITIAL_ADVERTISE_PEER_URLS=$peer" \
            "PEER_CLIENT_CERT_AUTH=true" "PEER_TRUSTED_CA_FILE=$copy/peers.crt"
    } > "$copy/env" || fail "cannot write $copy/env"
    printf '%s\n' "$arg_peer_authority" > "$copy/peers.crt" || fail "cannot write $copy/peers.crt"
    chown "$arg_user:" "$copy/peers.crt" || fail "cannot change the owner of $copy/peers.crt to $arg_user"
    # As the unit of etcd has it, and nobody but this machine.
    set -- IPAddressDeny=any IPAddressAllow=localhost UMask=0077 NoNewPrivileges=true CapabilityBoundingSet= \
        AmbientCapabilities= LockPersonality=true MemoryDenyWriteExecute=true PrivateDevices=true PrivateTmp=true \
        ProtectClock=true ProtectControlGroups=true ProtectHome=true ProtectHostname=true ProtectKernelLogs=true \
        ProtectKernelModules=true ProtectKernelTunables=true ProtectSystem=strict ReadWritePaths="$copy" \
        'RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX' RestrictNamespaces=true RestrictRealtime=true \
        RestrictSUIDSGID=true SystemCallArchitectures=native SystemCallFilter=@system-service SystemCallErrorNumber=EPERM
    for property in "$@"; do
        set -- "$@" --property="$property"
        shift
    done
    systemd-run --quiet --unit="$unit" --property=User="$arg_user" --property=EnvironmentFile="$copy/env" "$@" \
        "$server" || fail "cannot start etcd on the copy"
}

# Whether the server on the copy still runs; if not, what it said last.
alive() {
    case $(systemctl is-active "$unit") in
    active | activating) return 0 ;;
    esac
    said=$(journalctl -q -u "$unit" -n 3 -o cat 2> /dev/null | tr '\n' ' ')
    fail "the etcd on the copy has exited: $said"
}

find_copy
case $arg_action in
look) look ;;
begin) begin ;;
copy) take_copy ;;
append) append ;;
start) start ;;
stop) stop_server ;;
alive) alive ;;
end) end ;;
esac
