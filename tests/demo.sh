#!/bin/bash
# Creates three virtual hypervisors, a VM on each of them, and an etcd cluster in the VMs, with TLS and authentication. The lab stays
# up afterwards, so that you can try things; `tests/demo.sh down` removes it.
set -euo pipefail
cd "$(dirname "$0")/.."

name="etcdrun-demo"
folder=target/demo
lab="target/debug/lab --name $name"
etcdrun=target/debug/etcdrun

say() { printf '\n== %s\n' "$*"; }

if [ "${1-}" = down ]; then
    $lab down
    rm -rf "$folder"
    exit
fi

say 'Create three hypervisors'
mkdir -p "$folder"
$lab up --hypervisors 3 --hosts 0
cp "/var/lib/etcdrun-lab/$name/inventory.yaml" "$folder/inventory.yaml"

# The lab's network is where its first hypervisor is.
subnet=$(sed -n 's/.*address: \(10\.86\.[0-9]*\)\..*/\1/p' "$folder/inventory.yaml" | head -n 1)
key=$(sed -n 's/.*identity_file: *//p' "$folder/inventory.yaml" | head -n 1)
read -r version server <<<"$($lab etcd 3.5)"
sum=$(sha256sum "$server")
cat >>"$folder/inventory.yaml" <<END

etcd_releases:
  $version: { file: $server, sha256: ${sum%% *} }

clusters:
  demo:
    etcd: { version: $version, quota: 1GiB }
    guest:
      vcpus: 1
      memory: 512MiB
      disk: { base: /srv/guest.qcow2, size: 4GiB, cache: unsafe }
      data_disk: { size: 1GiB, cache: unsafe }
      admin: { user: ops, ssh_keys: ["$(cat "$key.pub")"] }
    ssh: { user: ops }
    members:
END
for n in 1 2 3; do
    echo "      etcd-$n: { hypervisor: hv$n, interfaces: [{ bridge: br0, ip: $subnet.$((209 + n))/24 }] }"
done >>"$folder/inventory.yaml"

say 'Create a cluster: guests, certificates, etcd, authentication'
"$etcdrun" playbook site.yaml -i "$folder/inventory.yaml"

say 'Run it again: nothing changes'
"$etcdrun" playbook site.yaml -i "$folder/inventory.yaml"

say 'Show its health'
# Without KVM, guests may be slow.
"$etcdrun" status -i "$folder/inventory.yaml" --connect-timeout 60

say 'Query it with etcdctl'
"$etcdrun" certs export root --cluster demo --to "$folder/creds" -i "$folder/inventory.yaml"
pki=$folder/creds
endpoints=https://$subnet.210:2379,https://$subnet.211:2379,https://$subnet.212:2379
"$($lab tools)/etcdctl" --endpoints "$endpoints" --cacert "$pki/ca.crt" --cert "$pki/root.crt" --key "$pki/root.key" \
    --dial-timeout 60s --command-timeout 60s endpoint status --write-out=table

cat <<END

The cluster is up. Try next:
  $etcdrun status -i $folder/inventory.yaml --json
  $etcdrun exec members -i $folder/inventory.yaml --read-only -- systemctl status etcd
  $etcdrun certs list -i $folder/inventory.yaml
  change quota in $folder/inventory.yaml, then: $etcdrun plan site.yaml -i $folder/inventory.yaml
  $lab kill hv2, and then: $etcdrun status -i $folder/inventory.yaml
  make demo-down removes everything
END
