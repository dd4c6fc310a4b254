# shellcheck shell=sh disable=SC2154

# Sets the current attributes of the account; $uid is empty if there is none.
read_account() {
    find_entry passwd "$arg_name"
    IFS=: read -r _ _ uid gid comment home shell <<ENTRY
$entry
ENTRY
}

# Sets $hash to what the shadow file holds, which only root may read.
read_hash() {
    hash=''
    [ -r /etc/shadow ] || fail "the password of $arg_name cannot be read; run the task with become"
    while IFS=: read -r name hash _; do
        [ "$name" = "$arg_name" ] && return 0
    done </etc/shadow
    hash=''
}

# Sets $memberships to the account's further groups, as " a b ".
read_memberships() {
    memberships=' '
    while IFS=: read -r name _ _ members; do
        case ",$members," in *,"$arg_name",*) memberships="$memberships$name " ;; esac
    done </etc/group
}

# Sets $wanted_gid. A group that an earlier task would make is not there yet in check mode.
resolve_group() {
    wanted_gid=''
    [ "$arg_group" ] || return 0
    find_entry group "$arg_group"
    if [ -z "$entry" ]; then
        case $arg_group in *[!0-9]*) ;; *) find_number group "$arg_group" ;; esac
    fi
    if [ "$entry" ]; then
        wanted_gid=${entry#*:*:} wanted_gid=${wanted_gid%%:*}
    elif [ -z "$CHECK" ]; then
        fail "the group $arg_group does not exist"
    fi
}

need_groups() {
    [ -z "$CHECK" ] || return 0
    for name in $arg_groups; do
        find_entry group "$name"
        [ "$entry" ] || fail "the group $name does not exist"
    done
}

create_account() {
    need_tool useradd
    set --
    [ "$arg_uid" ] && set -- "$@" -u "$arg_uid"
    [ "$arg_group" ] && set -- "$@" -g "$arg_group"
    [ "$arg_groups" ] && set -- "$@" -G "$(join_groups "$arg_groups")"
    [ "$arg_home" ] && set -- "$@" -d "$arg_home"
    [ "$arg_shell" ] && set -- "$@" -s "$arg_shell"
    [ "$arg_set_comment" ] && set -- "$@" -c "$arg_comment"
    [ "$arg_system" ] && set -- "$@" -r
    if [ "$arg_create_home" ]; then set -- "$@" -m; else set -- "$@" -M; fi
    after='created
'
    mutate useradd "$@" "$arg_name" || fail "cannot create the user $arg_name"
}

join_groups() {
    joined=''
    for name in $1; do joined=$joined${joined:+,}$name; done
    printf %s "$joined"
}

# One usermod for all that differs.
modify_account() {
    set --
    if [ "$arg_uid" ] && [ "$arg_uid" != "$uid" ]; then
        differs uid "$uid" "$arg_uid"
        set -- "$@" -u "$arg_uid"
    fi
    if [ "$arg_group" ] && [ "$wanted_gid" != "$gid" ]; then
        differs group "$gid" "$arg_group"
        set -- "$@" -g "$arg_group"
    fi
    if [ "$arg_home" ] && [ "$arg_home" != "$home" ]; then
        differs home "$home" "$arg_home"
        set -- "$@" -d "$arg_home"
        [ "$arg_move_home" ] && set -- "$@" -m
    fi
    if [ "$arg_shell" ] && [ "$arg_shell" != "$shell" ]; then
        differs shell "$shell" "$arg_shell"
        set -- "$@" -s "$arg_shell"
    fi
    if [ "$arg_set_comment" ] && [ "$arg_comment" != "$comment" ]; then
        differs comment "$comment" "$arg_comment"
        set -- "$@" -c "$arg_comment"
    fi
    if [ "$arg_set_groups" ]; then
        compare_groups
        if [ "$groups_differ" ]; then
            differs groups "${memberships# }" "$wanted_groups"
            set -- "$@" -G "$(join_groups "$wanted_groups")"
        fi
    fi
    [ $# -gt 0 ] || return 0
    need_tool usermod
    mutate usermod "$@" "$arg_name" || fail "cannot change the user $arg_name"
}

# Sets $wanted_groups, and $groups_differ if the memberships are others.
compare_groups() {
    read_memberships
    groups_differ='' wanted_groups="$arg_groups "
    for name in $arg_groups; do
        case $memberships in *" $name "*) ;; *) groups_differ=1 ;; esac
    done
    for name in $memberships; do
        case " $arg_groups " in *" $name "*) continue ;; esac
        if [ "$arg_append" ]; then wanted_groups="$wanted_groups$name "; else groups_differ=1; fi
    done
}

set_password() {
    [ "$arg_set_password" ] || return 0
    if [ "$uid" ]; then
        [ "$arg_update_password" = always ] || return 0
        read_hash
        [ "${hash#!}" != "${arg_password#!}" ] || return 0
    fi
    differs password '(hidden)' '(another, hidden)'
    need_tool chpasswd
    printf '%s:%s\n' "$arg_name" "$arg_password" | mutate chpasswd -e || fail "cannot set the password of $arg_name"
}

set_lock() {
    [ "$arg_password_lock" ] || return 0
    if [ "$CHECK" ] && [ -z "$uid" ]; then return 0; fi
    read_hash
    case $arg_password_lock$hash in
    true!* | false[!!]* | false) return 0 ;;
    # Taking the mark away from an empty or impossible password would not make it a usable one.
    'false!' | 'false!!' | 'false!*') note "$arg_name has no password to unlock"; return 0 ;;
    true*) differs password_lock false true; flag=-L ;;
    *) differs password_lock true false; flag=-U ;;
    esac
    need_tool usermod
    mutate usermod "$flag" "$arg_name" || fail "cannot change the lock of $arg_name"
}

# useradd makes the home of a new account; this is for one that lost its own.
create_home() {
    [ "$arg_create_home" ] && [ "$uid" ] || return 0
    dir=${arg_home:-$home}
    [ -e "$dir" ] && return
    if [ "$CHECK" ] && [ "$arg_move_home" ] && [ -d "$home" ]; then return; fi
    differs home_directory absent "$dir"
    mutate make_home || fail "cannot create $dir"
}

make_home() {
    mkdir -p "$dir" && chmod 0700 "$dir" || return
    if [ -d /etc/skel ]; then cp -R /etc/skel/. "$dir" || return; fi
    chown -Rh "${arg_uid:-$uid}:${wanted_gid:-$gid}" "$dir"
}

refuse_taken_uid() {
    [ "$arg_uid" ] && [ "$arg_uid" != "$uid" ] || return 0
    find_number passwd "$arg_uid"
    if [ "$entry" ]; then fail "uid $arg_uid belongs to the user ${entry%%:*}"; fi
}

present() {
    read_account
    refuse_taken_uid
    resolve_group
    need_groups
    if [ "$uid" ]; then modify_account; else create_account; fi
    set_password
    set_lock
    create_home
    if [ "$before$after" ]; then
        changed
        show_differences "user $arg_name"
        [ "$CHECK" ] || read_account
    fi
    report
}

# In check mode the account is still the old one, or none; what is asked for will be true.
report() {
    uid=${arg_uid:-$uid} gid=${wanted_gid:-$gid}
    if [ "$uid" ]; then result_int uid "$uid"; fi
    if [ "$gid" ]; then result_int group "$gid"; fi
    home=${arg_home:-$home} shell=${arg_shell:-$shell}
    if [ "$home" ]; then result home "$home"; fi
    if [ "$shell" ]; then result shell "$shell"; fi
}

absent() {
    read_account
    [ "$uid" ] || return 0
    need_tool userdel
    differs uid "$uid" ''
    after=''
    changed
    show_differences "user $arg_name"
    set --
    [ "$arg_remove" ] && set -- -r
    mutate userdel "$@" "$arg_name" || fail "cannot remove the user $arg_name"
}

result name "$arg_name"
"$arg_state"
