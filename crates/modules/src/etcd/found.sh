# shellcheck shell=sh disable=SC2154
# The etcd that runs on this host, whoever has started it: its process, and what that was told.

# Proxies and gateways are the same program.
is_server() {
    program=$(readlink "/proc/$1/exe" 2> /dev/null) || return 1
    program=${program% (deleted)}
    [ "${program##*/}" = etcd ] || return 1
    second=$(tr '\0' '\n' < "/proc/$1/cmdline" | sed -n 2p)
    case $second in grpc-proxy | gateway) return 1 ;; esac
}

[ "$(id -u)" = 0 ] || fail "only root can see how etcd was started: log in as root, or with --become"
pids=''
for folder in /proc/[0-9]*; do
    if is_server "${folder#/proc/}"; then pids="$pids${pids:+ }${folder#/proc/}"; fi
done
case $pids in
'') fail "no etcd runs on this host" ;;
*' '*)
    # The one that systemd has under the usual name is meant.
    main=''
    if have systemctl; then main=$(systemctl show -p MainPID --value -- etcd.service 2> /dev/null); fi
    case " $pids " in
    *" $main "*) pid=$main ;;
    *) fail "several etcd run on this host: processes $pids; cannot tell which one to use" ;;
    esac
    ;;
*) pid=$pids ;;
esac

program=$(readlink "/proc/$pid/exe") || fail "etcd has just ended"
sum=$(sha256sum < "/proc/$pid/exe") || fail "cannot read the program of process $pid"
result pid "$pid"
result program "${program% (deleted)}"
result sha256 "${sum%% *}"
user=$(stat -c %U "/proc/$pid")
result user "$user"
if have getent; then result account "$(getent passwd "$user")"; fi
result folder "$(readlink "/proc/$pid/cwd")"
result unit "$(sed -n 's:.*/\([^/]*\.service\).*:\1:p' "/proc/$pid/cgroup" | sed -n 1p)"
if [ "$(stat -L -c %d:%i "/proc/$pid/root/")" != "$(stat -L -c %d:%i /)" ]; then result_bool contained true; fi
result arguments "$(tr '\0' '\n' < "/proc/$pid/cmdline")"
result environment "$(tr '\0' '\n' < "/proc/$pid/environ" | sed -n '/^ETCD_[A-Z0-9_]*=/p')"
