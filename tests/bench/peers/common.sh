# shellcheck shell=bash
# What both scripts need. In the environment:
#   MEMBERS   NAME=ADDRESS, a word each
#   RELEASES  VERSION=FILE=SHA256, a word each, in the order in which they are taken
#   KEY, KNOWN_HOSTS   how to log in to the members as root
#   ETCDCTL, CACERT, CERT, CERT_KEY   how to ask etcd
#   WORK      a folder
#   DATA_DIR  where members have their data
#   ENTRIES, ENTRIES_JOB   a program, and its argument, that adds 500 entries to the log, which change nothing

sockets=$(mktemp -d)
names=() endpoints=''
declare -A address=()
for word in $MEMBERS; do
    names+=("${word%%=*}")
    address[${word%%=*}]=${word#*=}
    endpoints+=${endpoints:+,}https://${word#*=}:2379
done

# One connection a host, for all that is done there.
on() {
    local host=$1
    shift
    ssh -o ControlMaster=auto -o ControlPath="$sockets/%h" -o ControlPersist=60 -o BatchMode=yes -o IdentitiesOnly=yes \
        -o UserKnownHostsFile="$KNOWN_HOSTS" -i "$KEY" "root@${address[$host]}" "$@"
}

hang_up() {
    local name
    for name in "${names[@]}"; do
        ssh -o ControlPath="$sockets/%h" -O exit "root@${address[$name]}" 2> /dev/null || true
    done
    rm -rf "$sockets"
}
trap hang_up EXIT

ask() {
    "$ETCDCTL" --cacert "$CACERT" --cert "$CERT" --key "$CERT_KEY" --dial-timeout 3s --command-timeout 3s "$@"
}

get() {
    curl --silent --fail --max-time 3 --cacert "$CACERT" --cert "$CERT" --key "$CERT_KEY" "https://${address[$1]}:2379$2"
}

# shellcheck source=tests/bench/peers/wait.sh
. "$(dirname "$0")/wait.sh"

# The new server beside the old one, on all members at once, and it is what it should be.
bring() {
    local version=$1 file=$2 sum=$3 name jobs=() job
    for name in "${names[@]}"; do
        on "$name" "mkdir -p /opt/etcd/$version && cat > /opt/etcd/$version/etcd && chmod 755 /opt/etcd/$version/etcd &&
            echo '$sum  /opt/etcd/$version/etcd' | sha256sum --check --quiet" < "$file" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job"; done
}

# The unit of a member names another server.
swap() {
    on "$1" "sed -i 's|^ExecStart=.*|ExecStart=/opt/etcd/$2/etcd|' /etc/systemd/system/etcd.service && systemctl daemon-reload"
}
