# shellcheck shell=sh disable=SC2034,SC2154
# Stops etcd, and gives the folder of its data another name.

data=${arg_data_dir%/}

# Whether no member has ever written anything: etcd makes its folder when it starts, also if it then ends because it has no cluster.
# So it does after a reboot in the middle of a replacement. The log may be on another disk, so the rest has to be as new, too, and no
# server may serve with it.
is_unused() {
    [ "$entries" = "$data/member" ] || return 1
    ls "$data/member" > /dev/null || fail "cannot read $data/member"
    if [ -L "$data/member" ] || [ -L "$data/member/wal" ]; then return 1; fi
    for file in "$data"/member/wal/*.wal "$data"/member/snap/*.snap; do
        if [ -e "$file" ]; then return 1; fi
    done
    # In blocks of 512 bytes. A new database has 16 or 32 KiB.
    [ -z "$(find "$data/member" -type f -size +128)" ] || return 1
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
