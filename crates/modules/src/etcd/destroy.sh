# shellcheck shell=sh disable=SC2034,SC2154
# A machine that was a member of a cluster which is no more: the unit, the settings, the keys and the server go, and the data goes
# or is set aside. Nothing happens to a machine that is a member of another cluster.

unit=etcd.service
file=/etc/systemd/system/$unit
data=${arg_data_dir%/}
config=${arg_config_dir%/}

if [ -e "$file" ] && ! grep -qxF "Description=etcd, a member of $arg_cluster" "$file"; then
    fail "$file was not created by etcdrun for a member of $arg_cluster; this host is not changed"
fi

remove() {
    if [ ! -e "$1" ] && [ ! -L "$1" ]; then return 0; fi
    changed
    mutate rm -rf -- "$1" || fail "cannot remove $1"
}

remove_if_empty() {
    if [ "$CHECK" ]; then return 0; fi
    rmdir -- "$1" 2> /dev/null
}

remove_data() {
    changed
    if [ "$CHECK" ]; then return 0; fi
    each_data "$data" rm -rf -- || fail "cannot remove what is in $data"
    remove_if_empty "$data"
}

if have_systemd; then
    read_unit
    if [ "$load_state" != not-found ]; then
        set_state stopped
        set_enabled false
        show_unit_change
    fi
fi
entries=$(list_data "$data") || fail "cannot read $data"
if [ "$entries" ]; then
    if [ "$arg_keep_data" ]; then set_data_aside "$data"; else remove_data; fi
fi
had_unit=''
if [ -e "$file" ]; then had_unit=1; fi
remove "$file"
remove "$file.next"
if [ "$had_unit" ] && have_systemd; then
    mutate systemctl daemon-reload || fail "systemd cannot read its units again"
    mutate systemctl reset-failed "$unit" 2> /dev/null
fi
remove "$config/etcd.env"
remove "$config/etcd.env.next"
remove "$config/pki"
remove_if_empty "$config"
remove "$arg_server"
remove_if_empty "${arg_server%/*}"

older=''
for entry in "$data".before-* "$data".removed-* "$data".restore-* "$data"/before-* "$data"/removed-*; do
    if [ -e "$entry" ]; then older="$older${older:+ }$entry"; fi
done
if [ "$older" ]; then note "data that was moved aside is kept: $older"; fi
