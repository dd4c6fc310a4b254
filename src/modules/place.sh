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
    if [ -d "$dest" ]; then
        if [ -z "$arg_name" ]; then fail "$dest is a directory"; fi
        dest=${dest%/}/$arg_name
    elif [ "$dest" != "${dest%/}" ]; then
        if [ -z "$arg_name" ]; then fail "$dest names a directory, not a file"; fi
        missing=$dest
        dest=$dest$arg_name
    fi
    if [ -L "$dest" ] && [ "$arg_follow" ]; then
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

# noclobber makes the shell open with O_EXCL: nobody can plant a link where the body goes.
write_body() {
    set -C
    case $arg_source in
    inline) printf '%s' "$arg_content" ;;
    url) fetch_url ;;
    *) cat "$arg_staged" ;;
    esac > "$1"
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
            mutate chown "$chown" "$new" || give_up "cannot give $dest to $chown"
        else
            chown "$uid:$gid" "$new" 2> /dev/null || :
        fi
    fi
    if [ "$new_mode" ]; then mutate chmod "00$new_mode" "$new" || give_up "cannot set the mode of $dest to $new_mode"; fi
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
    backup=$dest.$(date +%Y-%m-%d@%H:%M:%S)~
    result backup_file "$backup"
    mutate cp -p "$dest" "$backup" || give_up "cannot keep a backup as $backup"
}

make_missing() {
    mutate mkdir -p "$missing" || fail "cannot make the directory $missing"
    if [ "$arg_directory_mode" ]; then mutate chmod "$arg_directory_mode" "$missing" || fail "cannot set the mode of $missing"; fi
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
write_dest "$@"
