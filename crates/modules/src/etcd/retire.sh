# shellcheck shell=sh disable=SC2034,SC2154
# Stops etcd, and gives the folder of its data another name.

data=${arg_data_dir%/}
entries=$(list_data "$data") || fail "cannot read $data"
if [ "$arg_unfinished" ]; then
    if [ -z "$entries" ]; then exit 0; fi
    [ -e "$arg_unfinished" ] ||
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
