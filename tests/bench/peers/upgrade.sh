#!/usr/bin/env bash
# The reference for a rollout: the same steps with the same gates, by hand, as somebody would write them who knows
# what etcd needs. Nothing is journaled, locked or resumed, and nothing is said when a gate stays shut.
set -euo pipefail
# shellcheck source=tests/bench/peers/common.sh
. "$(dirname "$0")/common.sh"

# A line for each member: endpoint, id, version, size, leads, learns, term, index, applied, errors.
status() {
    ask --endpoints "$endpoints" endpoint status | tr -d ' '
}

# All are there, none learns, none complains, all are in the same term, and one leads.
agree() {
    local lines
    lines=$(status 2> /dev/null) || return 1
    awk -F, -v members="${#names[@]}" '
        $6 == "true" || $10 != "" || (term && $7 != term) { bad = 1 }
        { term = $7; leaders += $5 == "true" }
        END { exit bad || NR != members || leaders != 1 }' <<< "$lines"
}

# A read that the cluster agrees on, through each of them; all are listed and started.
all_well() {
    local list
    ask --endpoints "$endpoints" endpoint health > /dev/null 2>&1 || return 1
    agree || return 1
    list=$(ask --endpoints "$endpoints" member list 2> /dev/null) || return 1
    [ "$(grep -c started <<< "$list")" -eq "${#names[@]}" ]
}

# The hosts' clocks agree, there is room, and the server that is to run is what it should be.
hosts_well() {
    local name now jobs=() job
    now=$(date +%s)
    for name in "${names[@]}"; do
        on "$name" "test \$(date +%s) -ge $((now - 1)) && df --output=avail /var/lib/etcd /opt > /dev/null &&
            echo '$2  /opt/etcd/$1/etcd' | sha256sum --check --quiet" &
        jobs+=($!)
    done
    for job in "${jobs[@]}"; do wait "$job"; done
}

line_of() {
    status | grep "//${address[$1]}:"
}

leads() {
    [ "$(line_of "$1" | cut -d, -f5)" = true ]
}

# Another one leads, one that has all that this one has.
hand_over() {
    local own=$1 mark other id
    leads "$own" || return 0
    mark=$(line_of "$own" | cut -d, -f8)
    for other in "${names[@]}"; do
        [ "$other" != "$own" ] || continue
        until_holds 10 has_reached "$other" "$mark"
        id=$(line_of "$other" | cut -d, -f2)
        ask --endpoints "https://${address[$own]}:2379" move-leader "$id" > /dev/null
        return 0
    done
}

has_reached() {
    local applied
    applied=$(line_of "$1" 2> /dev/null | cut -d, -f9) && [ "${applied:-0}" -ge "$2" ]
}

# It answers reads, and has what the leader had when it was asked.
is_back() {
    local name=$1 mark
    until_holds 60 ask --endpoints "https://${address[$name]}:2379" endpoint health > /dev/null 2>&1
    mark=$(status | awk -F, '$5 == "true" { print $8 }')
    until_holds 60 has_reached "$name" "${mark:-0}"
    until_holds 60 all_well
}

# What all members say of the cluster is the new version; from 3.6 on what is stored as well.
is_raised() {
    local minor=${1%.*} name said
    for name in "${names[@]}"; do
        said=$(get "$name" /version) || return 1
        [[ $said == *"\"etcdcluster\":\"$minor."* ]] || return 1
        case $minor in
        3.4 | 3.5) ;;
        *) [[ $said == *"\"storage\":\"$minor."* ]] || return 1 ;;
        esac
    done
}

# The index of the newest snapshot of a member's log, as its name has it.
in_snapshot() {
    local name
    name=$(on "$1" "ls $DATA_DIR/member/snap | grep '[.]snap\$' | tail -n 1")
    name=${name##*-}
    [ -n "$name" ] && [ $((16#${name%.snap})) -ge "$2" ]
}

all_in_snapshots() {
    local name
    for name in "${names[@]}"; do
        in_snapshot "$name" "$1" || return 1
    done
}

# 3.7 cannot read what 3.5 has left in the log: entries that change nothing are added until it is in snapshots.
checkpoint() {
    local mark
    mark=$(status | awk -F, '$5 == "true" { print $8 }')
    until all_in_snapshots "$mark"; do
        "$ENTRIES" entries "$ENTRIES_JOB"
        sleep 0.1
    done
}

turn() {
    local name=$1 version=$2 sum=$3
    until_holds 60 all_well
    hosts_well "$version" "$sum"
    swap "$name" "$version"
    hand_over "$name"
    on "$name" systemctl restart etcd
    is_back "$name"
}

snapshot() {
    ask --endpoints "https://${address[${names[0]}]}:2379" --command-timeout 120s snapshot save "$WORK/before.db" > /dev/null
}

until_holds 60 all_well
snapshot
for release in $RELEASES; do
    IFS='=' read -r version file sum <<< "$release"
    bring "$version" "$file" "$sum"
    case $version in
    3.7.*) checkpoint ;;
    esac
    # Whoever leads comes last.
    for name in "${names[@]}"; do
        if leads "$name"; then leader=$name; fi
    done
    for name in "${names[@]}"; do
        [ "$name" = "$leader" ] || turn "$name" "$version" "$sum"
    done
    turn "$leader" "$version" "$sum"
    until_holds 60 is_raised "$version"
done
