# shellcheck shell=sh disable=SC2154

# escape TEXT: sets $escaped to the text as fstab and mountinfo write it, blanks in octal.
escape() {
    escaped='' rest=$1
    while :; do
        case $rest in
        *[\ \	\\]*)
            head=${rest%%[\ \	\\]*}
            rest=${rest#"$head"}
            case $rest in
            ' '*) code=\\040 ;;
            '	'*) code=\\011 ;;
            *) code=\\134 ;;
            esac
            escaped=$escaped$head$code
            rest=${rest#?}
            ;;
        *) escaped=$escaped$rest; return ;;
        esac
    done
}

# Sets $mounted, and $live_src and $live_type of what is mounted last at the path.
read_mounts() {
    mounted='' live_src='' live_type=''
    real=$arg_path
    # The kernel knows the path behind any links in it.
    if [ -d "$real" ]; then real=$(cd -P -- "$real" && pwd -P) || real=$arg_path; fi
    escape "$real"
    real=$escaped
    while read -r _ _ _ _ point _ rest; do
        [ "$point" = "$real" ] || continue
        # Between the options and the type stand any number of fields, ended by a dash.
        rest=" $rest" rest=${rest#* - }
        mounted=1 live_type=${rest%% *}
        rest=${rest#* } live_src=${rest%% *}
    done </proc/self/mountinfo
}

# Sets $edited to $text with $1 as the path's line; with none if $1 is empty.
# The old line's fields are left in old_src, old_type and old_opts.
edit_fstab() {
    edited='' written='' old_src='' old_type='' old_opts=''
    while IFS= read -r line; do
        read -r entry_src entry_path entry_type entry_opts entry_dump entry_passno _ <<LINE
$line
LINE
        if is_ours; then
            [ "$written" ] && continue
            written=1
            old_src=$entry_src old_type=$entry_type old_opts=$entry_opts
            [ "$1" ] || continue
            # A line that says the same in other spacing stays as it was written.
            [ "$entry_src $entry_path $entry_type $entry_opts ${entry_dump:-0} ${entry_passno:-0}" = "$1" ] || line=$1
        fi
        edited=$edited$line$nl
    done <<TEXT
$text
TEXT
    # The here-document added one empty line to the end.
    edited=${edited%"$nl"}
    if [ "$1" ] && [ -z "$written" ]; then edited="$edited$1$nl"; fi
}

# Swap has no path of its own; there the device tells entries apart.
is_ours() {
    case $entry_src in '' | '#'*) return 1 ;; esac
    [ "$entry_path" = "$path" ] || return
    [ "$path" != none ] || [ "$entry_src" = "$src" ]
}

write_fstab() {
    read_text "$arg_fstab"
    edit_fstab "$1"
    fstab_changed=''
    [ "$edited" != "$text" ] || return 0
    fstab_changed=1
    replace_text "$arg_fstab" "$text" "$edited"
}

wanted_line() {
    escape "$arg_opts"
    wanted="$src $path $arg_fstype $escaped $arg_dump $arg_passno"
}

# show_state BEFORE AFTER
show_state() {
    changed
    printf '%s\n' "$1" | show_before "$arg_path"
    printf '%s\n' "$2" | show_after "$arg_path"
}

do_mount() {
    show_state 'not mounted' "mounted: $arg_src"
    mutate mount -t "$arg_fstype" -o "$arg_opts" "$arg_src" "$arg_path" || fail "cannot mount $arg_src on $arg_path"
}

do_unmount() {
    show_state "mounted: $live_src" 'not mounted'
    mutate umount "$arg_path" || fail "cannot unmount $arg_path"
}

do_remount() {
    changed
    mutate mount -o "remount${arg_opts:+,$arg_opts}" "$arg_path" || fail "cannot remount $arg_path"
}

need_directory() {
    [ ! -d "$arg_path" ] || return 0
    [ ! -e "$arg_path" ] || [ -f "$arg_path" ] || fail "$arg_path is not a directory"
    [ ! -f "$arg_path" ] || return 0
    changed
    mutate mkdir -p "$arg_path" || fail "cannot create $arg_path"
}

# Whether the entry before this task was of another device or type than is asked for now.
is_other() {
    if [ "$old_src" ]; then
        [ "$old_src $old_type" != "$src $arg_fstype" ]
    else
        [ "$live_src $live_type" != "$src $arg_fstype" ]
    fi
}

mounted() {
    wanted_line
    write_fstab "$wanted"
    need_directory
    read_mounts
    if [ -z "$mounted" ]; then
        do_mount
    elif [ "$fstab_changed" ] && is_other; then
        do_unmount
        do_mount
    elif [ "$fstab_changed" ] && [ "${old_opts:-$arg_opts}" != "$arg_opts" ]; then
        do_remount
    fi
}

ephemeral() {
    need_directory
    read_mounts
    if [ -z "$mounted" ]; then do_mount; fi
}

present() {
    wanted_line
    write_fstab "$wanted"
}

unmounted() {
    read_mounts
    if [ "$mounted" ]; then do_unmount; fi
}

absent() {
    unmounted
    write_fstab ''
    if [ "$path" != none ] && [ -d "$arg_path" ]; then remove_directory; fi
}

# Only an empty one: what lies in it was there before anything was mounted over it.
remove_directory() {
    if [ -z "$mounted" ] && [ -n "$(ls -A "$arg_path")" ]; then
        note "$arg_path stays, it is not empty"
        return
    fi
    [ "$fstab_changed$mounted" ] || return 0
    changed
    mutate rmdir "$arg_path" || note "$arg_path stays, it is not empty"
}

remounted() {
    read_mounts
    if [ -z "$mounted" ]; then
        [ "$CHECK" ] || fail "nothing is mounted on $arg_path"
        unknown "nothing is mounted on $arg_path yet"
        return
    fi
    do_remount
}

escape "$arg_path"
path=$escaped
escape "$arg_src"
src=$escaped
result path "$arg_path"
"$arg_state"
