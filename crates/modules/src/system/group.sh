# shellcheck shell=sh disable=SC2034,SC2154

create_group() {
    need_tool groupadd
    set --
    [ "$arg_gid" ] && set -- -g "$arg_gid"
    [ "$arg_system" ] && set -- "$@" -r
    after="created${arg_gid:+ with gid $arg_gid}
"
    changed
    mutate groupadd "$@" "$arg_name" || fail "cannot create the group $arg_name"
}

move_group() {
    need_tool groupmod
    differs gid "$gid" "$arg_gid"
    changed
    mutate groupmod -g "$arg_gid" "$arg_name" || fail "cannot change the gid of the group $arg_name"
}

refuse_taken_gid() {
    find_number group "$arg_gid"
    if [ "$entry" ]; then fail "gid $arg_gid belongs to the group ${entry%%:*}"; fi
}

read_gid() {
    find_entry group "$arg_name"
    gid=${entry#*:*:} gid=${gid%%:*}
}

present() {
    read_gid
    if [ "$arg_gid" ] && [ "$arg_gid" != "$gid" ]; then refuse_taken_gid; fi
    if [ -z "$gid" ]; then
        create_group
    elif [ "$arg_gid" ] && [ "$arg_gid" != "$gid" ]; then
        move_group
    else
        result_int gid "$gid"
        return
    fi
    show_differences "group $arg_name"
    [ "$CHECK" ] || read_gid
    gid=${arg_gid:-$gid}
    if [ "$gid" ]; then result_int gid "$gid"; fi
}

absent() {
    read_gid
    [ "$gid" ] || return 0
    need_tool groupdel
    before="gid: $gid
" after=''
    show_differences "group $arg_name"
    changed
    mutate groupdel "$arg_name" || fail "cannot remove the group $arg_name"
}

result name "$arg_name"
"$arg_state"
