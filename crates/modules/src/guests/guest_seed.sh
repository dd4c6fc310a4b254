# shellcheck shell=sh disable=SC2034,SC2154
# What a guest is told at its first boot, as a volume of its own. In front of the payloads that write it, which define
# `read_seed` (sets $seed_uuid and $seed_sha256 of what is there), `write_seed` and `show`.

keep_mode() {
    mode=$(stat -c %a "$path")
    # A running guest's files belong to whom libvirt gives them; the mode is ours.
    if [ "$mode" != 600 ]; then
        changed
        mutate chmod 600 "$path" || fail "cannot set the mode of $path"
    fi
}

# Sets $uuid, and $domain if it exists.
find_uuid() {
    domain=''
    uuid=$(vir domuuid "$arg_name" 2>/dev/null) || uuid=''
    if [ "$uuid" ]; then domain=1; return; fi
    uuid=${arg_uuid-}
    if [ -z "$uuid" ] && [ -e "$path" ]; then uuid=$seed_uuid; fi
    if [ "$uuid" ]; then return; fi
    if [ "$CHECK" ]; then uuid=00000000-0000-0000-0000-000000000000; else read -r uuid </proc/sys/kernel/random/uuid; fi
}

replace() {
    rm -f "$new"
    write_seed
    put_into_place
}

# Gives $new its name.
put_into_place() {
    chmod 600 "$new"
    mv "$new" "$path" || { rm -f "$new"; fail "cannot put $arg_volume into place"; }
    vir pool-refresh "$arg_pool" >/dev/null 2>&1 || :
}

needs_rebuild() {
    show
    reason="the guest was made from other data for its first boot"
    if [ "$seed_sha256" = "$arg_sha256" ]; then reason="$arg_volume belongs to the guest $seed_uuid"; fi
    result_bool needs_rebuild 1
    result reason "$reason"
    note "needs a rebuild: $reason"
}

present() {
    result volume "$arg_volume"
    result_bool needs_rebuild ''
    if [ "$CHECK" ] && ! read_pool "$arg_pool"; then
        changed
        result uuid 00000000-0000-0000-0000-000000000000
        result path "/(pool $arg_pool)/$arg_volume"
        note "the pool $arg_pool does not exist yet"
        exit 0
    fi
    need_pool "$arg_pool"
    path=$pool_path/$arg_volume
    new=$pool_path/.etcdrun-new-$arg_volume
    result path "$path"
    seed_uuid='' seed_sha256=''
    if [ -e "$path" ]; then read_seed; fi
    find_uuid
    result uuid "$uuid"
    if [ -e "$path" ] && [ "$seed_uuid $seed_sha256" = "$uuid $arg_sha256" ]; then
        keep_mode
    elif [ -e "$path" ] && [ "$domain" ]; then
        needs_rebuild
    else
        changed
        show
        mutate replace
    fi
}

absent() {
    read_pool "$arg_pool" || exit 0
    path=$pool_path/$arg_volume
    [ -e "$path" ] || exit 0
    if vir domuuid "$arg_name" >/dev/null 2>&1; then fail "the domain $arg_name still has $arg_volume; undefine that first"; fi
    changed
    mutate rm -f "$path" || fail "cannot remove $path"
    mutate vir pool-refresh "$arg_pool" >/dev/null 2>&1 || :
}
