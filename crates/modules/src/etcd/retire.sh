# shellcheck shell=sh disable=SC2034,SC2154
# Stops etcd, and gives the folder of its data another name.

data=${arg_data_dir%/}

# Whether no member has ever written anything: etcd makes its folder when it starts, also if it then ends because it has no cluster.
# So it does after a reboot in the middle of a replacement.
is_unused() {
    [ "$entries" = "$data/member" ] || return 1
    ls "$data/member" > /dev/null || fail "cannot read $data/member"
    for log in "$data"/member/wal/*.wal; do
        if [ -e "$log" ]; then return 1; fi
    done
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
