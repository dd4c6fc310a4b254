# shellcheck shell=sh disable=SC2034,SC2154
# The configuration tells its own contents apart by a file that the guest gets: `ETCDRUN-SHA256-UUID`.

read_seed() {
    mark=$(grep -oE 'ETCDRUN-[0-9a-f]{64}-[0-9a-f-]{36}' "$path" | head -n 1)
    if [ -z "$mark" ]; then return; fi
    mark=${mark#ETCDRUN-}
    seed_sha256=${mark%%-*}
    seed_uuid=${mark#*-}
}

config() {
    printf '%s' "$arg_config" | sed "s/@ETCDRUN-INSTANCE@/ETCDRUN-$arg_sha256-$uuid/"
}

show() {
    if [ -z "$DIFF" ]; then return; fi
    if [ -e "$path" ]; then show_before "$arg_volume" <"$path"; else show_before "$arg_volume" </dev/null; fi
    config | show_after "$arg_volume"
}

write_seed() {
    (umask 077 && config >"$new") || { rm -f "$new"; fail "cannot write to $pool_path"; }
}

need_libvirt
"$arg_state"
