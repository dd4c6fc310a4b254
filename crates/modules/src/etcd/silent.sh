# shellcheck shell=sh disable=SC2154
# Why a member of which nothing was heard is silent: whether its server runs, and whether anything listens where it would.

if have systemctl; then
    state=$(systemctl is-active etcd.service 2> /dev/null)
    result state "${state:-unknown}"
fi
port=$(printf '%04X' "$arg_port")
# A socket that listens has the state 0A.
for table in /proc/net/tcp /proc/net/tcp6; do
    if [ -r "$table" ] && grep -qE "^ *[0-9]+: [0-9A-F]+:$port [0-9A-F]+:0000 0A " "$table"; then
        result_bool listens 1
        break
    fi
done
