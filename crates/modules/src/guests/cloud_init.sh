# shellcheck shell=sh disable=SC2034,SC2154
# The ISO tells its own contents apart by its application id: `ETCDRUN UUID SHA256`, at a fixed place in its first sector.

read_seed() {
    application=$(tail -c +33343 "$path" | head -c 128 | tr -d '\000')
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
    if [ -e "$path" ] && have isoinfo; then isoinfo -R -i "$path" -x "/$1" 2>/dev/null; fi
}

show() {
    if [ -z "$DIFF" ]; then return; fi
    for file in user-data network-config; do
        case $file in user-data) text=$arg_user_data ;; *) text=$arg_network_config ;; esac
        old_file "$file" | show_before "$arg_volume: $file"
        printf '%s' "$text" | show_after "$arg_volume: $file"
    done
}

choose_builder() {
    for builder in genisoimage mkisofs xorriso; do
        if have "$builder"; then return; fi
    done
    builder=''
    return 1
}

build() {
    tmp_dir
    umask 077
    mkdir "$TMP/seed" || fail "cannot create a temporary directory"
    printf '%s' "$arg_user_data" >"$TMP/seed/user-data"
    printf '%s' "$arg_network_config" >"$TMP/seed/network-config"
    meta_data >"$TMP/seed/meta-data"
    set -- -quiet -output "$new" -volid cidata -joliet -rock -A "ETCDRUN $uuid $arg_sha256" \
        "$TMP/seed/user-data" "$TMP/seed/meta-data" "$TMP/seed/network-config"
    if [ "$builder" = xorriso ]; then set -- -as mkisofs "$@"; fi
    "$builder" "$@" || { rm -rf "$new" "$TMP/seed"; fail "$builder could not build the ISO"; }
    rm -rf "$TMP/seed"
}

write_seed() {
    if [ "${arg_staged-}" ]; then
        (umask 077 && cat "$arg_staged" >"$new") || { rm -f "$new"; fail "cannot write to $pool_path"; }
    elif choose_builder; then
        build
    else
        # The operator has to build it.
        result application "ETCDRUN $uuid $arg_sha256"
        result_bool wanted 1
        exit 0
    fi
}

need_libvirt
"$arg_state"
