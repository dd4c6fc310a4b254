# shellcheck shell=sh disable=SC2034,SC2154
# The ISO tells its own contents apart by its application id: `ETCDRUN UUID SHA256`, at a fixed place in its first sector.

# Sets $seed_uuid and $seed_sha256 of the ISO that is there; empty if it is none of ours.
read_seed() {
    seed_uuid='' seed_sha256=''
    application=$(dd if="$path" bs=1 skip=33342 count=128 2>/dev/null | tr -d '\000')
    case $application in
    'ETCDRUN '*)
        read -r _ seed_uuid seed_sha256 _ <<SEED
$application
SEED
        ;;
    esac
}

meta_data() {
    printf '{"instance-id": "%s", "local-hostname": "%s"}\n' "$uuid" "$arg_hostname"
}

# The old contents of a file, where isoinfo came with genisoimage.
old_file() {
    if have isoinfo; then isoinfo -R -i "$path" -x "/$1" 2>/dev/null; fi
}

show() {
    if [ -z "$DIFF" ]; then return; fi
    for file in user-data network-config; do
        case $file in user-data) text=$arg_user_data ;; *) text=$arg_network_config ;; esac
        if [ -e "$path" ]; then old_file "$file" | show_before "$arg_volume: $file"; else show_before "$arg_volume: $file" </dev/null; fi
        printf '%s' "$text" | show_after "$arg_volume: $file"
    done
}

choose_builder() {
    builder=''
    for builder in genisoimage mkisofs xorriso; do
        if have "$builder"; then return; fi
    done
    builder=''
    return 1
}

build() {
    tmp_dir
    umask 077
    mkdir "$TMP/seed" || fail "cannot make a temporary folder"
    printf '%s' "$arg_user_data" >"$TMP/seed/user-data"
    printf '%s' "$arg_network_config" >"$TMP/seed/network-config"
    meta_data >"$TMP/seed/meta-data"
    set -- -quiet -output "$new" -volid cidata -joliet -rock -A "ETCDRUN $uuid $arg_sha256" \
        "$TMP/seed/user-data" "$TMP/seed/meta-data" "$TMP/seed/network-config"
    if [ "$builder" = xorriso ]; then set -- -as mkisofs "$@"; fi
    "$builder" "$@" || { rm -rf "$new" "$TMP/seed"; fail "$builder could not build the ISO"; }
    rm -rf "$TMP/seed"
}

write_iso() {
    changed
    show
    if [ "$CHECK" ]; then return; fi
    new=$pool_path/.etcdrun-new-$arg_volume
    rm -f "$new"
    if [ "${arg_staged-}" ]; then
        (umask 077 && cat "$arg_staged" >"$new") || { rm -f "$new"; fail "cannot write to $pool_path"; }
    elif choose_builder; then
        build
    else
        result application "ETCDRUN $uuid $arg_sha256"
        result_bool wanted 1
        exit 0
    fi
    chmod 600 "$new"
    mv "$new" "$path" || { rm -f "$new"; fail "cannot put the ISO into place"; }
    vir pool-refresh "$arg_pool" >/dev/null 2>&1 || :
}

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

present() {
    if [ "$CHECK" ] && ! read_pool "$arg_pool"; then
        changed
        result uuid 00000000-0000-0000-0000-000000000000
        note "the pool $arg_pool is not there yet"
        exit 0
    fi
    need_pool "$arg_pool"
    path=$pool_path/$arg_volume
    result path "$path"
    result volume "$arg_volume"
    result_bool needs_rebuild ''
    seed_uuid='' seed_sha256=''
    if [ -e "$path" ]; then read_seed; fi
    find_uuid
    result uuid "$uuid"
    if [ ! -e "$path" ]; then
        write_iso
    elif [ "$seed_uuid $seed_sha256" = "$uuid $arg_sha256" ]; then
        keep_mode
    elif [ "$domain" ]; then
        show
        result_bool needs_rebuild 1
        if [ "$seed_sha256" != "$arg_sha256" ]; then reason="the guest was made from other cloud-init data"; else reason="the ISO belongs to the guest $seed_uuid"; fi
        result reason "$reason"
        note "needs a rebuild: $reason"
    else
        write_iso
    fi
}

absent() {
    read_pool "$arg_pool" || exit 0
    path=$pool_path/$arg_volume
    [ -e "$path" ] || exit 0
    if vir domuuid "$arg_name" >/dev/null 2>&1; then fail "the domain $arg_name still has the ISO; undefine that first"; fi
    changed
    mutate rm -f "$path" || fail "cannot remove $path"
    mutate vir pool-refresh "$arg_pool" >/dev/null 2>&1 || :
}

need_libvirt
"$arg_state"
