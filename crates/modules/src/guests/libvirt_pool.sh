# shellcheck shell=sh disable=SC2154

make_pool() {
    if [ -z "$arg_path" ]; then no_such_pool "$arg_name"; fi
    changed
    show_before "pool $arg_name" </dev/null
    printf '%s\n' "$arg_xml" | show_after "pool $arg_name"
    result path "$arg_path"
    if [ "$CHECK" ]; then exit 0; fi
    mkdir -p "$arg_path" || fail "cannot create the directory $arg_path"
    printf '%s\n' "$arg_xml" | vir pool-define /dev/stdin >/dev/null || fail "cannot define the pool $arg_name"
}

present() {
    if read_pool "$arg_name"; then
        if [ "$arg_path" ] && [ "$pool_path" != "$arg_path" ]; then
            fail "the pool $arg_name is at $pool_path, not at $arg_path; an existing pool is not moved"
        fi
        result path "$pool_path"
    else
        make_pool
    fi
    info=$(vir pool-info "$arg_name") || fail "cannot inspect the pool $arg_name"
    field State "$info"
    if [ "$value" != running ]; then
        changed
        mutate vir pool-start "$arg_name" >/dev/null || fail "cannot start the pool $arg_name"
    fi
    field Autostart "$info"
    if [ "$arg_autostart" ] && [ "$value" != yes ]; then
        changed
        mutate vir pool-autostart "$arg_name" >/dev/null || fail "cannot enable autostart of the pool $arg_name"
    elif [ -z "$arg_autostart" ] && [ "$value" = yes ]; then
        changed
        mutate vir pool-autostart --disable "$arg_name" >/dev/null || fail "cannot change the pool $arg_name"
    fi
}

absent() {
    read_pool "$arg_name" || exit 0
    changed
    field State "$(vir pool-info "$arg_name")"
    if [ "$value" = running ]; then
        mutate vir pool-destroy "$arg_name" >/dev/null || fail "cannot stop the pool $arg_name"
    fi
    mutate vir pool-undefine "$arg_name" >/dev/null || fail "cannot remove the pool $arg_name"
    note "$pool_path and its content are kept"
}

need_libvirt
"$arg_state"
