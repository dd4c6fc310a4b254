#!/bin/bash
# Deploys the example in inventory/platform on nine hosts of the lab: etcd, PostgreSQL under Patroni, load balancers and monitoring.
# Then a primary is lost, and comes back. The lab stays up; `tests/demo-postgres.sh down` removes it.
set -euo pipefail
cd "$(dirname "$0")/.."

# The test that plays this has a lab of its own.
name=${ETCDRUN_DEMO_LAB:-etcdrun-pg}
folder=target/$name
lab="target/debug/lab --name $name"
etcdrun=$PWD/target/debug/etcdrun

say() { printf '\n== %s\n' "$*"; }

if [ "${1-}" = down ]; then
    $lab down
    rm -rf "$folder"
    exit
fi

# A second time it begins with new hosts, as the certificates of the first are gone.
$lab down

say 'Create nine hosts'
rm -rf "$folder"
mkdir -p "$folder"
$lab up --hypervisors 0 --hosts 0 --services 9
made=/var/lib/etcdrun-lab/$name/inventory.yaml
subnet=$(sed -n 's/.*address: \(10\.86\.[0-9]*\)\..*/\1/p' "$made" | head -n 1)
read -r version server <<<"$($lab etcd 3.6)"
sum=$(sha256sum "$server")
wheels=$($lab wheels)

# The example, with the addresses, keys and files of the lab.
{
    sed '/^hosts:/,$d' "$made"
    sed -e '/^ssh:/d' -e '/^ *url:/d' -e "s/^  3\.6\.15:/  $version:/" -e "s/version: 3\.6\.15/version: $version/" \
        -e "s|^    sha256:.*|    file: $server\n    sha256: ${sum%% *}|" \
        -e "s|\"10\.0\.0\.1{n}\"|\"$subnet.{n+80}\"|" -e "s|\"10\.0\.0\.2{n}\"|\"$subnet.{n+83}\"|" \
        -e "s|\"10\.0\.0\.3{n}\"|\"$subnet.{n+86}\"|" -e "s|10\.0\.0\.41|$subnet.89|" -e "s|10\.0\.0\.5\b|$subnet.99|" \
        -e "s|^\( *\)patroni_etcd_cluster:.*|&\n\1patroni_wheels: $wheels|" inventory/platform/inventory.yaml
} >"$folder/inventory.yaml"
cp -r inventory/platform/playbooks "$folder/"
cd "$folder"
lab="../../$lab"

say 'Deploy everything'
"$etcdrun" playbook platform.yaml

say 'Run it again: nothing changes'
"$etcdrun" playbook platform.yaml

say 'Show etcd, and PostgreSQL'
"$etcdrun" status
"$etcdrun" exec pg-1 --read-only -- patronictl list

# A client of PostgreSQL on the host watch-1.
query() {
    $lab enter service9 -- env "PGPASSWORD=encrypt this, too" PGSSLMODE=verify-full PGSSLROOTCERT=/root/ca.crt PGCONNECT_TIMEOUT=5 \
        psql -XAtq -h "$subnet.99" -U postgres -c "$1"
}
$lab enter service9 -- tee /root/ca.crt <.etcdrun/pki/postgres-main/ca.crt >/dev/null

# Members as Patroni on this host sees them, by an expression of Python over the list `members`.
members() {
    $lab enter "$1" -- patronictl list -f json | python3 -c "import json, sys; members = json.load(sys.stdin); print($2)"
}

say 'Commit a row through the load balancer'
query 'create table demo (id int primary key, at timestamptz); insert into demo values (1, now()); table demo'

primary=$(members service4 'next(it["Member"] for it in members if it["Role"] == "Leader")')
host=service$((3 + ${primary#pg-}))
say "Take the power from $primary, which is the primary, and commit another row as soon as a replica has taken over"
$lab kill "$host"
since=$SECONDS
until query 'insert into demo values (2, now()) on conflict do nothing' 2>/dev/null; do
    if [ $((SECONDS - since)) -gt 120 ]; then echo 'no other member became the primary within two minutes' >&2; exit 1; fi
    sleep 1
done
echo "after $((SECONDS - since)) s; rows: $(query 'select count(*) from demo')"

say "Switch $primary on again: it comes back as a replica"
$lab start "$host"
since=$SECONDS
until [ "$(members "$host" 'sum(it["State"] in ("running", "streaming") for it in members)' 2>/dev/null)" = 3 ]; do
    if [ $((SECONDS - since)) -gt 120 ]; then echo "$primary did not come back within two minutes" >&2; exit 1; fi
    sleep 1
done
"$etcdrun" exec "$primary" --read-only -- patronictl list

say 'Ask Prometheus how many targets are up'
$lab enter service9 -- curl -sG 127.0.0.1:9090/api/v1/query --data-urlencode 'query=count by (job) (up == 1)'

cat <<END


Everything is up. In $folder, try next:
  $etcdrun status
  change patroni_parameters in inventory.yaml, then: $etcdrun plan platform.yaml
  $etcdrun playbook postgres-restart.yaml -e patroni_restart_all=true
  change the version of etcd in inventory.yaml, then: $etcdrun playbook upgrade.yaml
  make demo-postgres-down removes everything
END
