# shellcheck shell=sh disable=SC2034,SC2154
# Stops etcd, and gives the folder of its data another name.

data=${arg_data_dir%/}

# Whether no member has ever written anything: etcd makes its folder when it starts, also if it then ends because it has no cluster.
# So it does after a reboot in the middle of a replacement. There is nothing but an empty database, and no server serves with it.
is_unused() {
    [ "$entries" = "$data/member" ] || return 1
    ls "$data/member" > /dev/null || fail "cannot read $data/member"
    [ ! -L "$data/member" ] && [ -e "$data/member/snap/db" ] || return 1
    others=$(find "$data/member" ! -type d ! -path "$data/member/snap/db") || fail "cannot read all of $data/member"
    [ -z "$others" ] || return 1
    # A new database takes up to 32 KiB, however long the file is.
    kib=$(du -k "$data/member/snap/db") || fail "cannot read $data/member/snap/db"
    [ "${kib%%[!0-9]*}" -le 64 ] || return 1
    if have_systemd && systemctl is-active --quiet "$arg_unit"; then return 1; fi
}

entries=$(list_data "$data") || fail "cannot read $data"
if [ "$arg_unfinished" ]; then
    if [ -z "$entries" ]; then exit 0; fi
    [ -e "$arg_unfinished" ] || is_unused ||
        fail "$data has data of an etcd that is not a member of this cluster; move it aside, or name another host"
fi

unit=$arg_unit
if have_systemd; then
    read_unit
    if [ "$load_state" != not-found ]; then
        set_state stopped
        if [ "$arg_disable" ]; then set_enabled false; fi
        show_unit_change
    fi
fi

if [ -z "$entries" ]; then exit 0; fi
set_data_aside "$data"
note "the data is in $aside"
