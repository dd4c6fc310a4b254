# shellcheck shell=sh disable=SC2034,SC2154
# Puts a file into place: compares, writes beside it, and renames, so that nobody ever sees half of it.
#
# arg_source says where the body is: inline (arg_content), staged (the file arg_staged on this
# host), remote (the same, but neither its size nor its checksum is known yet), url (download.sh
# brings it), or ask (not here yet: say whether it is wanted). arg_name is the file's name should arg_dest be a directory.

# Sets $dest to the file's own path, and $missing to the directory that is to be made for it.
resolve_dest() {
    resolve_path "$arg_dest"
    dest=$path missing=''
    no_follow=1
    if [ "$arg_follow" ] || [ -d "$dest" ]; then no_follow=''; fi
    refuse_strange_links "$dest" "$no_follow"
    if [ -d "$dest" ]; then
        if [ -z "$arg_name" ]; then fail "$dest is a directory"; fi
        dest=${dest%/}/$arg_name
    elif [ "$dest" != "${dest%/}" ]; then
        if [ -z "$arg_name" ]; then fail "$dest names a directory, not a file"; fi
        missing=$dest
        dest=$dest$arg_name
    fi
    if [ -L "$dest" ] && [ "$arg_follow" ]; then
        refuse_strange_link "$dest"
        dest=$(readlink -f "$dest") || fail "cannot follow the link $path"
    fi
    folder=${dest%/*}
    folder=${folder:-/}
}

# Sets $existing if there is a regular file to compare with; anything else in its place is an error.
look_at_dest() {
    existing=''
    if [ -L "$dest" ] && [ ! -d "$dest" ]; then return 0; fi
    if [ -f "$dest" ]; then
        existing=1
        if has_glance && _attributes_of "$dest"; then split_attributes "$_attributes"; else look "$dest" ''; fi
    elif [ -d "$dest" ]; then
        fail "$dest is a directory"
    elif [ -e "$dest" ]; then
        fail "$dest is not a regular file"
    elif [ ! -d "$folder" ] && [ -z "$missing" ]; then
        if [ -z "$CHECK" ]; then fail "the directory $folder does not exist"; fi
        note "the directory $folder does not exist yet"
    fi
}

# Whether somebody has looked at this file, by its own name, together with those of other steps.
has_glance() {
    [ "$_glances" ] && [ "$dest" = "$arg_dest" ]
}

checksum() {
    sum=$(sha256sum < "$1") || fail "cannot read $1"
    sum=${sum%% *}
}

measure_source() {
    resolve_path "$arg_staged"
    arg_staged=$path
    if [ ! -f "$arg_staged" ]; then fail "$arg_staged is not a file on this host"; fi
    look "$arg_staged" ''
    arg_size=$size
    checksum "$arg_staged"
    arg_sha256=$sum
}

# Whether the body in place is already the right one. The size is known from `look`, for free.
same_body() {
    if [ -z "$existing" ] || [ -z "$arg_sha256" ]; then return 1; fi
    case $arg_size in '' | "$size") ;; *) return 1 ;; esac
    if has_glance && _sum_of "$dest"; then sum=$_sum; else checksum "$dest"; fi
    [ "$sum" = "$arg_sha256" ]
}

show_bodies() {
    if [ -z "$DIFF" ] || [ "$arg_source" != inline ]; then return 0; fi
    if [ -z "$existing" ]; then
        show_before "$dest" < /dev/null
    elif [ "$size" -le 262144 ]; then
        # shellcheck disable=SC2094 # The first is a label.
        show_before "$dest" < "$dest"
    else
        note "$dest is too large to show a diff"
        return 0
    fi
    printf '%s' "$arg_content" | show_after "$dest"
}

# noclobber makes the shell open with O_EXCL: nobody can plant a link where the body goes. It stays open as descriptor 7, because whoever
# can write to the folder may give its name to something else.
write_body() {
    make_new "$1" || return
    case $arg_source in
    inline) printf '%s' "$arg_content" ;;
    url) fetch_url ;;
    *) cat "$arg_staged" ;;
    esac >&7
}

# Makes the file $1, which must not be there, as descriptor 7.
make_new() {
    set -C
    command exec 7> "$1"
    status=$?
    set +C
    return $status
}

give_up() {
    if [ -e "$new" ]; then rm -f "$new"; fi
    fail "$1"
}

# The file's own attributes stay unless others were asked for.
dress_new() {
    if [ "$chown$existing" ]; then
        if [ "$chown" ]; then
            mutate chown "$chown" /proc/self/fd/7 || give_up "cannot give $dest to $chown"
        else
            chown "$uid:$gid" /proc/self/fd/7 2> /dev/null || :
        fi
    fi
    if [ "$new_mode" ]; then mutate chmod "00$new_mode" /proc/self/fd/7 || give_up "cannot set the mode of $dest to $new_mode"; fi
    # A program that is open for writing cannot be run to validate it.
    exec 7>&-
}

# Sets $chown and $new_mode for the file that is to be written.
want_attributes() {
    if [ "$existing" ]; then
        differ "$dest"
        new_mode=${chmod:-$mode}
        # The owner that was not asked to change must survive a change of the group, and vice versa.
        case $chown in
        '') ;;
        :*) chown=$uid$chown ;;
        *:*) ;;
        *) chown=$chown:$gid ;;
        esac
        return 0
    fi
    chown=$arg_owner
    if [ "$arg_group" ]; then chown=$chown:$arg_group; fi
    case $arg_mode in
    '' | [0-7]*) new_mode=$arg_mode ;;
    *)
        octal_mode '' ''
        new_mode=$octal
        ;;
    esac
}

# Runs "$@" on the new file, its path in the place of %s.
validate() {
    count=$#
    while [ "$count" -gt 0 ]; do
        word=$1
        shift
        case $word in *%s*) word=${word%%'%s'*}$new${word#*'%s'} ;; esac
        set -- "$@" "$word"
        count=$((count - 1))
    done
    "$@" || give_up "the new $dest did not pass the validation: $1"
}

keep_backup() {
    if [ -z "$arg_backup" ] || [ -z "$existing" ]; then return 0; fi
    stamp=$dest.$(date +%Y-%m-%d@%H:%M:%S)
    backup=$stamp~ number=1
    while [ -e "$backup" ] || [ -L "$backup" ]; do
        number=$((number + 1))
        backup=$stamp-$number~
    done
    result backup_file "$backup"
    mutate copy_old || give_up "cannot keep a backup as $backup"
}

# The backup is of the very file that is read, and has its attributes: whoever can write to the folder may exchange both names.
copy_old() {
    command exec 6< "$dest" && make_new "$backup" && cat <&6 >&7 || return 1
    old=$(stat -L -c '%u:%g %a' /proc/self/fd/6) || return 1
    old_mode=${old#* }
    # Without its owner it has no set-id bits.
    chown "${old% *}" /proc/self/fd/7 2> /dev/null || old_mode=${old_mode#"${old_mode%???}"}
    chmod "00$old_mode" /proc/self/fd/7 && touch -r /proc/self/fd/6 /proc/self/fd/7
    status=$?
    exec 6<&- 7>&-
    return $status
}

make_missing() {
    mutate mkdir -p "$missing" || fail "cannot create the directory $missing"
    if [ -z "$arg_directory_mode" ]; then return 0; fi
    pinned=$missing
    if [ -z "$CHECK" ]; then pin "$missing"; fi
    mutate chmod "$arg_directory_mode" "$pinned" || fail "cannot set the mode of $missing"
    exec 8<&-
}

write_dest() {
    want_attributes
    if [ "$missing" ]; then make_missing; fi
    new=$folder/.etcdrun.$$
    # A leftover of a killed run that had the same process id.
    if [ -e "$new" ] || [ -L "$new" ]; then mutate rm -f "$new"; fi
    if [ "$new_mode" ]; then umask 077; fi
    mutate write_body "$new" || give_up "cannot write to $folder"
    if [ -z "$CHECK" ]; then
        if [ "$arg_source" = url ]; then check_download; fi
        dress_new
        if [ $# -gt 0 ]; then validate "$@"; fi
    fi
    keep_backup
    mutate mv -f "$new" "$dest" || give_up "cannot replace $dest"
    if have restorecon; then mutate restorecon "$dest" || note "cannot restore the security context of $dest"; fi
}

if [ "$arg_source" = remote ]; then measure_source; fi
resolve_dest
look_at_dest
result dest "$dest"
if [ "$existing" ] && [ "$arg_keep" ]; then
    note "$dest exists"
    correct_attributes "$dest" ''
    exit 0
fi
if [ "$arg_expect" ]; then
    sum=''
    if [ "$existing" ]; then checksum "$dest"; fi
    if [ "$sum" != "${arg_expect#-}" ]; then
        result_bool stale 1
        exit 0
    fi
fi
if same_body; then
    drop_staged "$dest"
    result sha256 "$arg_sha256"
    correct_attributes "$dest" ''
    exit 0
fi
if [ "$arg_source" = ask ]; then
    result_bool wanted 1
    if [ -z "$CHECK" ]; then exit 0; fi
fi
if [ "$arg_source" = url ]; then
    before_download
else
    result sha256 "$arg_sha256"
    changed
    show_bodies
fi
if [ "$existing" ] && { is_in_use || is_elsewhere "$dest"; }; then
    note "$dest is not replaced until $arg_stage_for restarts"
    dest=$dest.next
    look_at_dest
    if same_body; then
        correct_attributes "$dest" ''
        exit 0
    fi
else
    drop_staged "$dest"
fi
write_dest "$@"
