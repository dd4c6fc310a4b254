#!/bin/sh
# Holds the namespaces of one host and runs its system in them, again after each reboot. Runs in network and mount
# namespaces of its own, with these in its environment:
#   FOLDER   the host's folder: upper, work, disk.img, console
#   ADDRESS  its address
#   LOWER    the layers of its root filesystem, as overlayfs wants them
#   DISK     where its data disk is mounted in it
#   MACHINE  a name for nspawn that no other host on this machine has
#   NAME     its host name
# The arguments are further options for nspawn.
set -eu

# What nspawn and mount leave in /run stays in here, and goes with this process.
mount -t tmpfs -o mode=0755 lab /run
mkdir /run/root /run/disk
mount -t overlay -o "lowerdir=$LOWER,upperdir=$FOLDER/upper,workdir=$FOLDER/work" lab /run/root
mount -o loop "$FOLDER/disk.img" /run/disk

echo held
read -r _
exec >>"$FOLDER/console" 2>&1 </dev/null

# A machine that boots has its cables and nothing else: what the last boot made on them is gone.
boot_network() {
    nft flush ruleset
    ip -o link show | while IFS=': ' read -r _ link _; do
        case $link in
            lo | eth0@* | eth1@*) ;;
            *) ip link del "${link%@*}" 2>/dev/null || true ;;
        esac
    done
    echo 0 >/proc/sys/net/ipv4/ip_forward
    ip link set lo up
    ip addr flush dev eth0
    ip link set eth0 mtu 1500 up
    ip addr add "$ADDRESS/24" dev eth0
    if ip link show dev eth1 >/dev/null 2>&1; then
        ip link add br0 type bridge forward_delay 0
        ip link set eth1 master br0 up
        ip link set br0 up
    fi
}

export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1 SYSTEMD_NSPAWN_API_VFS_WRITABLE=network
while :; do
    boot_network
    status=0
    systemd-nspawn --quiet --boot --keep-unit --register=no --console=read-only \
        --machine="$MACHINE" --hostname="$NAME" --directory=/run/root --bind="/run/disk:$DISK" \
        --network-namespace-path="/proc/$$/ns/net" --capability=all \
        --link-journal=no --resolv-conf=off --timezone=off "$@" || status=$?
    # 133 is a reboot; anything else is the end of the host.
    [ "$status" -eq 133 ] || exit "$status"
done
