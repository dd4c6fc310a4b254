#!/usr/bin/env bash
# A serial restart as many do it: the next server, a restart, and on as soon as the member says that it is healthy.
# Prints `crashed NAME` for a member that does not come back, and ends there.
set -euo pipefail
# shellcheck source=tests/bench/peers/common.sh
. "$(dirname "$0")/common.sh"

healthy() {
    get "$1" /health 2> /dev/null | grep -q '"health":"true"'
}

for release in $RELEASES; do
    IFS='=' read -r version file sum <<< "$release"
    bring "$version" "$file" "$sum"
    for name in "${names[@]}"; do
        swap "$name" "$version"
        on "$name" systemctl restart etcd || true
        if ! until_holds 15 healthy "$name"; then
            echo "crashed $name"
            on "$name" "journalctl --unit etcd --output cat --no-pager | grep --max-count 1 '^panic'" || true
            exit 0
        fi
    done
done
