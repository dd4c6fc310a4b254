# shellcheck shell=sh disable=SC2034,SC2154
# Stops etcd, and gives the folder of its data another name.

first=''
if [ -d "$arg_data_dir" ]; then
    first=$(find "$arg_data_dir" -mindepth 1 -maxdepth 1 ! -name lost+found ! -name 'removed-*' -print -quit) ||
        fail "cannot read $arg_data_dir"
fi
if [ "$arg_unfinished" ]; then
    if [ -z "$first" ]; then exit 0; fi
    [ -e "$arg_unfinished" ] ||
        fail "$arg_data_dir holds data of an etcd that is no member of this cluster; set it aside, or name another machine"
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

if [ -z "$first" ]; then exit 0; fi
stamp=$(date -u +%Y%m%dT%H%M%SZ)
aside=$arg_data_dir.removed-$stamp
number=1
while [ -e "$aside" ]; do
    number=$((number + 1))
    aside=$arg_data_dir.removed-$stamp-$number
done
changed
# A folder that is a disk of its own cannot be renamed: what is in it moves below.
if ! mutate mv -T -- "$arg_data_dir" "$aside" 2> /dev/null; then
    aside=$arg_data_dir/removed-$stamp
    mkdir -- "$aside" || fail "cannot set the data in $arg_data_dir aside"
    for entry in "$arg_data_dir"/*; do
        case ${entry##*/} in lost+found | removed-*) continue ;; esac
        mv -- "$entry" "$aside/" || fail "cannot move $entry to $aside"
    done
fi
mutate sync -f "${arg_data_dir%/*}"
result aside "$aside"
note "the data is in $aside"
