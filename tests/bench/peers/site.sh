#!/usr/bin/env bash
# The reference for site.yaml with guests: the same steps and the same waits, by hand, all hypervisors at once. Nothing is
# checked beforehand, journaled, locked or resumed, and it works once. In the environment:
#   MEMBERS   NAME=HYPERVISOR=ADDRESS=MAC, a word each; HYPERVISOR is an address, ADDRESS that of the guest
#   KEY, KNOWN_HOSTS   how to log in to the hypervisors as root, and to the guests as ops
#   BASE      the base image, a file on the hypervisors
#   ETCD, SHA256, ETCDCTL   the server, its sum, and etcdctl
#   PKI       a folder for the authority and root's certificate
#   WORK      a folder
set -euo pipefail

pool=/var/lib/libvirt/images consoles=/var/log/libvirt/qemu
sockets=$(mktemp -d)
names=() endpoints='' peers=''
declare -A hypervisor=() address=() mac=() uuid=()
for word in $MEMBERS; do
    IFS='=' read -r name host ip hardware <<< "$word"
    names+=("$name")
    hypervisor[$name]=$host address[$name]=$ip mac[$name]=$hardware
    read -r "uuid[$name]" < /proc/sys/kernel/random/uuid
    endpoints+=${endpoints:+,}https://$ip:2379
    peers+=${peers:+,}$name=https://$ip:2380
done

options=(-o ControlMaster=auto -o ControlPath="$sockets/%h" -o ControlPersist=60 -o BatchMode=yes -o IdentitiesOnly=yes -i "$KEY")

# One connection a host, for all that is done there.
on_hypervisor() {
    local name=$1
    shift
    ssh "${options[@]}" -o UserKnownHostsFile="$KNOWN_HOSTS" "root@${hypervisor[$name]}" "$@"
}

on_guest() {
    local name=$1
    shift
    ssh "${options[@]}" -o ConnectTimeout=30 -o UserKnownHostsFile="$WORK/known_hosts-$name" "ops@${address[$name]}" "$@"
}

hang_up() {
    local name
    for name in "${names[@]}"; do
        ssh -o ControlPath="$sockets/%h" -O exit "root@${hypervisor[$name]}" 2> /dev/null || true
        ssh -o ControlPath="$sockets/%h" -O exit "ops@${address[$name]}" 2> /dev/null || true
    done
    rm -rf "$sockets"
}
trap hang_up EXIT

# shellcheck source=tests/bench/peers/wait.sh
. "$(dirname "$0")/wait.sh"

# each FUNCTION: for all members at once.
each() {
    local name jobs=() job
    for name in "${names[@]}"; do
        "$1" "$name" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job"; done
}

domain() {
    local name=$1
    cat << END
<domain type='qemu'>
  <name>$name</name>
  <uuid>${uuid[$name]}</uuid>
  <memory unit='KiB'>524288</memory>
  <vcpu>1</vcpu>
  <os><type machine='q35'>hvm</type></os>
  <features><acpi/><apic/></features>
  <cpu mode='maximum'><feature policy='disable' name='la57'/></cpu>
  <on_crash>restart</on_crash>
  <devices>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='unsafe'/><source file='$pool/$name.qcow2'/><target dev='vda' bus='virtio'/>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='qcow2' cache='unsafe'/><source file='$pool/$name-data.qcow2'/><target dev='vdb' bus='virtio'/>
      <serial>data</serial>
    </disk>
    <disk type='file' device='disk'>
      <driver name='qemu' type='raw'/><source file='$pool/$name-cloud-init.iso'/><target dev='vdc' bus='virtio'/>
      <readonly/>
    </disk>
    <interface type='bridge'><mac address='${mac[$name]}'/><source bridge='br0'/><model type='virtio'/></interface>
    <serial type='pty'><log file='$consoles/$name.console' append='on'/></serial>
    <channel type='unix'><target type='virtio' name='org.qemu.guest_agent.0'/></channel>
    <watchdog model='i6300esb' action='reset'/>
    <rng model='virtio'><backend model='random'>/dev/urandom</backend></rng>
  </devices>
</domain>
END
}

user_data() {
    cat << END
#cloud-config
hostname: $1
preserve_hostname: false
ssh_pwauth: false
disable_root: true
ssh: { emit_keys_to_console: true }
users:
  - name: ops
    shell: /bin/bash
    sudo: "ALL=(ALL) NOPASSWD:ALL"
    lock_passwd: true
    ssh_authorized_keys: ["$(cat "$KEY.pub")"]
END
}

network_config() {
    cat << END
version: 2
ethernets:
  net0: { match: { macaddress: "${mac[$1]}" }, addresses: [${address[$1]}/24], dhcp4: false, dhcp6: false }
END
}

# Disks, what the guest is told at its first boot, and the guest itself.
make_guest() {
    local name=$1
    on_hypervisor "$name" sh -eu << END
umask 077
qemu-img create -q -f qcow2 -b $BASE -F qcow2 $pool/$name.qcow2 4G
qemu-img create -q -f qcow2 $pool/$name-data.qcow2 1G
seed=\$(mktemp -d)
cat > "\$seed/user-data" << 'SEED'
$(user_data "$name")
SEED
cat > "\$seed/network-config" << 'SEED'
$(network_config "$name")
SEED
echo '{"instance-id": "${uuid[$name]}", "local-hostname": "$name"}' > "\$seed/meta-data"
genisoimage -quiet -output $pool/$name-cloud-init.iso -volid cidata -joliet -rock \
    "\$seed/user-data" "\$seed/meta-data" "\$seed/network-config"
rm -r "\$seed"
mkdir -p $consoles
virsh --quiet define --validate /dev/stdin << 'XML' > /dev/null
$(domain "$name")
XML
virsh --quiet autostart $name
virsh --quiet start $name
END
}

# The guest's key, by way of its hypervisor: cloud-init prints it to the console.
learn_key() {
    local name=$1
    on_hypervisor "$name" "end=\$((\$(date +%s) + 600))
        until grep -q 'END SSH HOST KEY KEYS' $consoles/$name.console 2> /dev/null; do
            [ \$(date +%s) -lt \$end ] || exit 1
            sleep 1
        done
        tr -d '\\r' < $consoles/$name.console |
            grep -oE '(ssh-ed25519|ecdsa-sha2-nistp256) [A-Za-z0-9+/]+=*' | sort -u | sed 's/^/${address[$name]} /'" > "$WORK/known_hosts-$name"
}

logs_in() {
    on_guest "$1" true 2> /dev/null
}

authority() {
    mkdir -p "$PKI/clients"
    openssl ecparam -name prime256v1 -genkey -noout -out "$PKI/ca.key"
    openssl req -x509 -new -key "$PKI/ca.key" -subj '/CN=prod' -days 3650 -out "$PKI/ca.crt"
    certificate root "$PKI/clients/root" 'extendedKeyUsage=clientAuth'
}

# certificate NAME PATH EXTENSIONS
certificate() {
    openssl ecparam -name prime256v1 -genkey -noout -out "$2.key"
    openssl req -new -key "$2.key" -subj "/CN=$1" -out "$2.csr"
    openssl x509 -req -in "$2.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAserial "$2.srl" -CAcreateserial -days 365 \
        -extfile <(echo "$3") -out "$2.crt" 2> /dev/null
}

settings() {
    local name=$1 ip=${address[$1]}
    cat << END
ETCD_NAME=$name
ETCD_DATA_DIR=/var/lib/etcd/data
ETCD_LISTEN_CLIENT_URLS=https://$ip:2379,https://127.0.0.1:2379
ETCD_ADVERTISE_CLIENT_URLS=https://$ip:2379
ETCD_LISTEN_PEER_URLS=https://$ip:2380
ETCD_INITIAL_ADVERTISE_PEER_URLS=https://$ip:2380
ETCD_INITIAL_CLUSTER=$peers
ETCD_INITIAL_CLUSTER_STATE=new
ETCD_CERT_FILE=/etc/etcd/pki/server.crt
ETCD_KEY_FILE=/etc/etcd/pki/server.key
ETCD_PEER_CERT_FILE=/etc/etcd/pki/server.crt
ETCD_PEER_KEY_FILE=/etc/etcd/pki/server.key
ETCD_TRUSTED_CA_FILE=/etc/etcd/pki/ca.crt
ETCD_PEER_TRUSTED_CA_FILE=/etc/etcd/pki/ca.crt
ETCD_CLIENT_CERT_AUTH=true
ETCD_PEER_CLIENT_CERT_AUTH=true
ETCD_QUOTA_BACKEND_BYTES=1073741824
ETCD_AUTO_COMPACTION_MODE=revision
ETCD_AUTO_COMPACTION_RETENTION=1000
ETCD_ENABLE_GRPC_GATEWAY=false
ETCD_LOGGER=zap
ETCD_LOG_OUTPUTS=stderr
ETCD_PRE_VOTE=true
ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK=true
ETCD_EXPERIMENTAL_CORRUPT_CHECK_TIME=12h
ETCD_EXPERIMENTAL_COMPACT_HASH_CHECK_ENABLED=true
END
}

unit() {
    cat << 'END'
[Unit]
Description=etcd
Wants=network-online.target
After=network-online.target
RequiresMountsFor=/var/lib/etcd/data

[Service]
Type=notify
User=etcd
Group=etcd
EnvironmentFile=/etc/etcd/etcd.env
ExecStart=/opt/etcd/etcd
Restart=on-failure
RestartSec=1
TimeoutStartSec=120
LimitNOFILE=65536
OOMScoreAdjust=-900
UMask=0077
NoNewPrivileges=true
CapabilityBoundingSet=
AmbientCapabilities=
LockPersonality=true
MemoryDenyWriteExecute=true
PrivateDevices=true
PrivateTmp=true
ProtectClock=true
ProtectControlGroups=true
ProtectHome=true
ProtectHostname=true
ProtectKernelLogs=true
ProtectKernelModules=true
ProtectKernelTunables=true
ProtectSystem=strict
ReadWritePaths=/var/lib/etcd
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=true
RestrictRealtime=true
RestrictSUIDSGID=true
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallErrorNumber=EPERM

[Install]
WantedBy=multi-user.target
END
}

# All that a member needs before it starts.
prepare() {
    local name=$1 folder=$WORK/$1
    mkdir -p "$folder"
    certificate "$name" "$folder/server" "extendedKeyUsage=serverAuth,clientAuth
subjectAltName=DNS:$name,DNS:localhost,IP:${address[$name]},IP:127.0.0.1,IP:::1"
    cp "$PKI/ca.crt" "$folder/ca.crt"
    settings "$name" > "$folder/etcd.env"
    unit > "$folder/etcd.service"
    on_guest "$name" sudo sh -eu << 'END'
useradd --system --home-dir /var/lib/etcd --no-create-home --shell /usr/sbin/nologin etcd
[ -z "$(blkid -p -o export /dev/disk/by-id/virtio-data)" ]
mkfs.ext4 -q -F /dev/disk/by-id/virtio-data
mkdir -p /var/lib/etcd /opt/etcd /etc/etcd/pki
echo '/dev/disk/by-id/virtio-data /var/lib/etcd ext4 noatime 0 0' >> /etc/fstab
mount /var/lib/etcd
mkdir -p /var/lib/etcd/data
chown etcd: /var/lib/etcd /var/lib/etcd/data
chmod 0700 /var/lib/etcd /var/lib/etcd/data
END
    scp -q "${options[@]}" -o UserKnownHostsFile="$WORK/known_hosts-$name" "$ETCD" "$folder/server.crt" "$folder/server.key" \
        "$folder/ca.crt" "$folder/etcd.env" "$folder/etcd.service" "ops@${address[$name]}:"
    on_guest "$name" sudo sh -eu << END
echo '$SHA256  $(basename "$ETCD")' | sha256sum --check --quiet
install -m 0755 '$(basename "$ETCD")' /opt/etcd/etcd
install -m 0644 -o etcd server.crt ca.crt /etc/etcd/pki
install -m 0600 -o etcd server.key /etc/etcd/pki
install -m 0644 etcd.env /etc/etcd/etcd.env
install -m 0644 etcd.service /etc/systemd/system/etcd.service
rm '$(basename "$ETCD")' server.crt server.key ca.crt etcd.env etcd.service
systemctl daemon-reload
systemctl --quiet enable etcd
END
}

guest() {
    make_guest "$1"
    learn_key "$1"
    until_holds 600 logs_in "$1"
    prepare "$1"
}

# A member that has data belongs to a cluster already: no other is made then.
is_new() {
    on_guest "$1" sudo sh -c "'test -z \"\$(ls /var/lib/etcd/data)\" && ! systemctl --quiet is-active etcd'"
}

start() {
    on_guest "$1" sudo systemctl start etcd
}

ask() {
    "$ETCDCTL" --endpoints "$endpoints" --cacert "$PKI/ca.crt" --cert "$PKI/clients/root.crt" --key "$PKI/clients/root.key" \
        --dial-timeout 10s --command-timeout 30s "$@"
}

all_well() {
    ask endpoint health > /dev/null 2>&1
}

authority
each guest
each is_new
each start
until_holds 120 all_well
{
    ask user add root --no-password
    ask role add root
    ask user grant-role root root
    ask auth enable
} > /dev/null
until_holds 60 all_well
