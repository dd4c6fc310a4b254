#!/bin/bash
# A first example: a private sshd on loopback acts as three hosts, and a playbook runs on them, twice.
# Everything is in one temporary directory, which is removed afterwards.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf '\n== %s\n' "$*"; }

folder=$(mktemp -d)
sshd_pid=''
clean_up() {
    if [ -n "$sshd_pid" ]; then kill "$sshd_pid" 2>/dev/null || true; fi
    rm -rf "$folder"
}
trap clean_up EXIT

free_port() {
    local port
    while port=$((20000 + RANDOM % 20000)); do
        if ! (: <"/dev/tcp/127.0.1.1/$port") 2>/dev/null; then echo "$port" && return; fi
    done
}

start_sshd() {
    port=$(free_port)
    ssh-keygen -q -t ed25519 -N '' -f "$folder/host_key"
    ssh-keygen -q -t ed25519 -N '' -f "$folder/id"
    cp "$folder/id.pub" "$folder/authorized_keys"
    {
        for address in 127.0.1.1 127.0.1.2 127.0.1.3; do echo "ListenAddress $address:$port"; done
        echo "HostKey $folder/host_key"
        echo "AuthorizedKeysFile $folder/authorized_keys"
        echo "PidFile none"
        echo "StrictModes no"
        echo "UsePAM no"
        echo "PasswordAuthentication no"
    } >"$folder/sshd_config"
    # As root, sshd needs this directory.
    if [ "$(id -u)" -eq 0 ]; then mkdir -p /run/sshd; fi
    /usr/sbin/sshd -D -e -f "$folder/sshd_config" 2>"$folder/sshd.log" &
    sshd_pid=$!
    for _ in $(seq 100); do
        if (: <"/dev/tcp/127.0.1.3/$port") 2>/dev/null; then return; fi
        kill -0 "$sshd_pid" 2>/dev/null || break
        sleep 0.05
    done
    echo 'sshd did not start:' >&2
    cat "$folder/sshd.log" >&2
    exit 1
}

write_inventory() {
    for n in 1 2 3; do
        echo "[127.0.1.$n]:$port $(cut -d ' ' -f 1,2 "$folder/host_key.pub")"
    done >"$folder/known_hosts"
    cat >"$folder/inventory.yaml" <<END
ssh:
  user: $(id -un)
  port: $port
  identity_file: id
  identities_only: true
  known_hosts: known_hosts
hosts:
  taste-[1-3]: { address: "127.0.1.{n}" }
END
}

say 'build'
cargo build --locked
etcdrun=$(cargo metadata --format-version 1 --no-deps --locked | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/etcdrun

say 'a private sshd on 127.0.1.1, .2 and .3'
start_sshd
write_inventory
cat "$folder/inventory.yaml"
run=("$etcdrun" playbook hello -i "$folder/inventory.yaml" -e "directory=$folder/hello" "$@")

say 'etcdrun playbook hello: everything is new'
"${run[@]}" --diff

say 'once more: nothing is left to change'
"${run[@]}" --plain

say 'etcdrun exec: one command on all hosts'
"$etcdrun" exec all -i "$folder/inventory.yaml" -- hostname
