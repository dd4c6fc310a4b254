# shellcheck shell=sh disable=SC2154
# One path and the state it should be in. Behind attributes.sh.

# Shows the change of kind; the attributes that a new file gets are no change of their own.
show_state() {
    note "$3"
    if [ "$DIFF" ]; then
        show_before "$path" << END
state: $1
END
        show_after "$path" << END
state: $2
END
    fi
    DIFF=''
}

# Sets $kind to the kind of thing that is at $path.
kind_now() {
    if [ -L "$path" ]; then
        kind="link to $(readlink "$path")"
    elif [ -d "$path" ]; then
        kind=directory
    elif [ -e "$path" ]; then
        kind="file"
    else
        kind=absent
    fi
}

# Makes the directory $1 and those above it that are missing; each gets the attributes.
make_directory() {
    above=${1%/*}
    if [ "$above" ] && [ ! -d "$above" ]; then make_directory "$above"; fi
    # Another host of this inventory may be the same machine, and make it at this very moment.
    mutate mkdir "$1" || [ -d "$1" ] || fail "cannot create the directory $1"
    if [ -z "$CHECK" ]; then apply_attributes "$1" ''; fi
}

want_directory() {
    refuse_strange_links "$path" "$no_follow"
    if [ -d "$path" ]; then
        apply_attributes "$path" "$no_follow"
    elif [ -e "$path" ] || [ -L "$path" ]; then
        fail "$path exists and is not a directory"
    else
        changed
        show_state absent directory "made the directory $path"
        make_directory "$path"
    fi
    if [ "$arg_recurse" ] && [ -d "$path" ]; then apply_below; fi
}

# Whether anything below $path has another owner or group ($1 is find's test, $2 the name).
below_differs() {
    if [ -z "$2" ]; then return 1; fi
    [ "$(find "$path" ! "$1" "$2" -print | head -c 1)" ]
}

apply_below() {
    if below_differs -user "$arg_owner" || below_differs -group "$arg_group"; then
        changed
        mutate chown -Rh "$arg_owner${arg_group:+:$arg_group}" "$path" || fail "cannot change the owner below $path"
    fi
    case $arg_mode in
    '') ;;
    [0-7]*)
        if [ "$(find "$path" ! -type l ! -perm "$arg_mode" -print | head -c 1)" ]; then
            changed
            mutate chmod -R "00$arg_mode" "$path" || fail "cannot change the mode below $path"
        fi
        ;;
    *)
        if [ "$CHECK" ]; then
            unknown "a symbolic mode below a directory cannot be predicted"
            return 0
        fi
        touched=$(chmod -R -c "$arg_mode" "$path") || fail "cannot change the mode below $path"
        if [ "$touched" ]; then changed; fi
        ;;
    esac
}

want_file() {
    refuse_strange_links "$path" "$no_follow"
    if [ -L "$path" ] && [ "$no_follow" ]; then
        apply_attributes "$path" -h
    elif [ -d "$path" ]; then
        fail "$path is a directory; set state: directory"
    elif [ -e "$path" ]; then
        apply_attributes "$path" ''
    elif [ "$CHECK" ]; then
        unknown "$path does not exist yet"
    else
        fail "$path does not exist; set state: touch to create an empty file, or use copy"
    fi
}

# Without a state: whatever is there keeps its kind.
want_same_kind() {
    if [ -d "$path" ]; then want_directory; else want_file; fi
}

want_absent() {
    if [ ! -e "$path" ] && [ ! -L "$path" ]; then return 0; fi
    changed
    kind_now
    show_state "$kind" absent "removed $path"
    if [ -d "$path" ] && [ ! -L "$path" ]; then
        mutate rm -rf "$path" || fail "cannot remove $path"
    else
        mutate rm -f "$path" || fail "cannot remove $path"
    fi
}

want_touched() {
    refuse_strange_links "$path" "$no_follow"
    changed
    if [ ! -e "$path" ] && [ ! -d "${path%/*}" ] && [ "${path%/*}" ]; then
        if [ -z "$CHECK" ]; then fail "the directory ${path%/*} does not exist"; fi
        note "the directory ${path%/*} does not exist yet"
    fi
    if [ ! -e "$path" ]; then show_state absent file "made the empty file $path"; fi
    mutate touch "$path" || fail "cannot touch $path"
    if [ -e "$path" ]; then apply_attributes "$path" "$no_follow"; fi
}

# Clears the way for a link; $1 is the kind of link, for the message.
make_way() {
    if [ ! -e "$path" ] && [ ! -L "$path" ]; then return 0; fi
    if [ -L "$path" ] && [ "$1" = link ]; then return 0; fi
    if [ -z "$arg_force" ]; then fail "$path exists and is not the requested $1; set force: true to replace it"; fi
    if [ -d "$path" ] && [ ! -L "$path" ]; then
        mutate rmdir "$path" || fail "$path is a directory that is not empty; it is not replaced by a $1"
    else
        mutate rm -f "$path" || fail "cannot remove $path"
    fi
}

want_link() {
    if [ -L "$path" ] && [ "$(readlink "$path")" = "$arg_src" ]; then
        apply_attributes "$path" "$no_follow"
        return 0
    fi
    case $arg_src in
    /*) points_at=$arg_src ;;
    *) points_at=${path%/*}/$arg_src ;;
    esac
    if [ ! -e "$points_at" ] && [ -z "$arg_force" ]; then
        if [ -z "$CHECK" ]; then fail "$points_at does not exist; set force: true to link to it anyway"; fi
        note "$points_at does not exist yet"
    fi
    changed
    kind_now
    show_state "$kind" "link to $arg_src" "linked $path to $arg_src"
    make_way link
    mutate ln -sfn "$arg_src" "$path" || fail "cannot create the link $path"
    if [ -z "$CHECK" ]; then apply_attributes "$path" "$no_follow"; fi
}

want_hard_link() {
    if [ ! -e "$arg_src" ]; then
        if [ -z "$CHECK" ]; then fail "$arg_src does not exist"; fi
        note "$arg_src does not exist yet"
    elif [ -e "$path" ] && [ "$(stat -c %d:%i "$path")" = "$(stat -c %d:%i "$arg_src")" ]; then
        apply_attributes "$path" ''
        return 0
    fi
    changed
    kind_now
    show_state "$kind" "hard link to $arg_src" "linked $path to $arg_src"
    make_way "hard link"
    mutate ln "$arg_src" "$path" || fail "cannot create the hard link $path"
    if [ -z "$CHECK" ]; then apply_attributes "$path" ''; fi
}

resolve_path "$arg_path"
result path "$path"
no_follow=''
if [ -z "$arg_follow" ] && [ -L "$path" ]; then no_follow=-h; fi
case $arg_state in
directory) want_directory ;;
file) want_file ;;
absent) want_absent ;;
touch) want_touched ;;
link) want_link ;;
hard) want_hard_link ;;
*) want_same_kind ;;
esac
