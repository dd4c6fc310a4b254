# shellcheck shell=sh disable=SC2034,SC2154
# Owner, group and mode of files, as arg_owner, arg_group and arg_mode ask for them.

# Sets $path: a relative path never looks like an option, and ~ is the home folder.
resolve_path() {
    case $1 in
    /*) path=$1 ;;
    '~') path=$HOME ;;
    '~'/*) path=$HOME/${1#'~/'} ;;
    *) path=./$1 ;;
    esac
}

# Fails if the path $1 leads through a link that a user has made to something that is not his: he could lead us anywhere. $2 is not
# empty if the path itself may be such a link.
refuse_strange_links() {
    way='' rest=$1/
    while [ "$rest" ]; do
        way=$way${rest%%/*} rest=${rest#*/}
        if [ -L "$way" ] && { [ "$rest" ] || [ -z "$2" ]; }; then refuse_strange_link "$way"; fi
        way=$way/
    done
}

refuse_strange_link() {
    _read_uid
    maker=$(stat -c %u "$1") || fail "cannot read the attributes of $1"
    case $maker in 0 | "$_uid") return 0 ;; esac
    if [ "$(stat -L -c %u "$1" 2> /dev/null)" != "$maker" ]; then
        fail "$1 is a link of user $maker to a file of another user, so it is not followed"
    fi
}

# Sets $pinned to a name for the file $1, which is open from now on: others may give its own name to something else meanwhile. What cannot
# be opened without harm, such as a device, keeps its name; so does what we may not read, unless we are root.
pin() {
    pinned=$1
    if [ ! -f "$1" ] && [ ! -d "$1" ]; then return 0; fi
    _read_uid
    if ! { command exec 8< "$1"; } 2> /dev/null; then
        if [ "$_uid" = 0 ]; then fail "cannot open $1"; fi
        return 0
    fi
    pinned=/proc/self/fd/8
    opened=$(stat -L -c '%d:%i' "$pinned") || fail "cannot read the attributes of $1"
    named=$(stat -c '%f %d:%i' "$1") || fail "cannot read the attributes of $1"
    case $named in
    a*) refuse_strange_link "$1" ;;
    *" $opened") ;;
    *) fail "$1 was replaced while its attributes were set" ;;
    esac
}

# Sets uid, gid, mode, size, owner and group to those of the file $1.
# $2 is empty to look at what a link points to, or -h to look at the link itself.
look() {
    if [ "$2" ]; then
        seen=$(stat -c '%u|%g|%a|%s|%U|%G' "$1")
    else
        seen=$(stat -L -c '%u|%g|%a|%s|%U|%G' "$1")
    fi || fail "cannot read the attributes of $1"
    split_attributes "$seen"
}

split_attributes() {
    seen=$1
    uid=${seen%%|*} seen=${seen#*|}
    gid=${seen%%|*} seen=${seen#*|}
    mode=${seen%%|*} seen=${seen#*|}
    size=${seen%%|*} seen=${seen#*|}
    owner=${seen%%|*} group=${seen#*|}
}

# Sets $octal to what the symbolic arg_mode makes of the mode $1, or of a new file if $1 is empty. $2 says whether it
# is a directory. These are the rules of chmod, without a file to try them on: a plan makes none.
octal_mode() {
    bits=$((0$1)) masked=$((07777))
    # The umask counts for a new file, and where nobody is named.
    case ${1:-new},$arg_mode in new,* | *,[=+-]*) masked=$((07777 & ~0$(umask))) ;; esac
    if [ -z "$1" ]; then
        if [ "$2" ]; then bits=$((0777 & masked)); else bits=$((0666 & masked)); fi
    fi
    clauses=$arg_mode,
    while [ "$clauses" ]; do
        clause=${clauses%%,*} clauses=${clauses#*,}
        apply_clause "$2"
    done
    octal=$(printf %o "$bits")
}

# Changes $bits as $clause says. $1 as above.
apply_clause() {
    who=${clause%%[=+-]*} permissions=${clause#"${clause%%[=+-]*}"}
    operator=${permissions%"${permissions#?}"} permissions=${permissions#?}
    affected=0 value=0 kept=0
    case $who in *u*) affected=$((affected | 04700)) ;; esac
    case $who in *g*) affected=$((affected | 02070)) ;; esac
    case $who in *o*) affected=$((affected | 01007)) ;; esac
    case $who in *a*) affected=$((07777)) ;; esac
    case $permissions in *r*) value=$((value | 0444)) ;; esac
    case $permissions in *w*) value=$((value | 0222)) ;; esac
    case $permissions in *x*) value=$((value | 0111)) ;; esac
    case $permissions in *s*) value=$((value | 06000)) ;; esac
    case $permissions in *t*) value=$((value | 01000)) ;; esac
    # The set-id bits of a directory stay unless they are named.
    if [ "$1" ]; then kept=$((06000 & ~value)); fi
    case $permissions in
    *X*) if [ "$1" ] || [ $((bits & 0111)) != 0 ]; then value=$((value | 0111)); fi ;;
    esac
    if [ "$who" ]; then value=$((value & affected & ~kept)); else value=$((value & masked & ~kept)); fi
    case $operator in
    =)
        if [ "$who" ]; then kept=$((kept | ~affected)); fi
        bits=$((bits & kept | value))
        ;;
    +) bits=$((bits | value)) ;;
    -) bits=$((bits & ~value)) ;;
    esac
}

# After `look`: sets $chown and $chmod to what must change on $1; empty where nothing must.
differ() {
    chown='' chmod=''
    case $arg_owner in '' | "$owner" | "$uid") ;; *) chown=$arg_owner ;; esac
    case $arg_group in '' | "$group" | "$gid") ;; *) chown=$chown:$arg_group ;; esac
    case $arg_mode in
    '' | "$mode") ;;
    [0-7]*) chmod=$arg_mode ;;
    *)
        directory=''
        if [ -d "$1" ]; then directory=1; fi
        octal_mode "$mode" "$directory"
        if [ "$octal" != "$mode" ]; then chmod=$octal; fi
        ;;
    esac
}

# After `differ`: the same as text, for a diff. $1 is the path.
show_attributes() {
    if [ -z "$DIFF" ]; then return 0; fi
    was='' will=''
    case $chown in '' | :*) ;; *) was="owner: $owner
" will="owner: $arg_owner
" ;; esac
    case $chown in *:*) was="${was}group: $group
" will="${will}group: $arg_group
" ;; esac
    if [ "$chmod" ]; then
        was="${was}mode: $mode
" will="${will}mode: $chmod
"
    fi
    show_before "$1 (attributes)" << END
$was
END
    show_after "$1 (attributes)" << END
$will
END
}

# Gives the existing file $1 the attributes it should have. $2 is -h for a link that is not to be
# followed; a link has no mode of its own.
apply_attributes() {
    if [ -z "$arg_owner$arg_group$arg_mode" ]; then return 0; fi
    look "$1" "$2"
    correct_attributes "$1" "$2"
}

# The same after `look`, which costs a process.
correct_attributes() {
    if [ -z "$arg_owner$arg_group$arg_mode" ]; then return 0; fi
    differ "$1"
    if [ "$2" ]; then chmod=''; fi
    if [ -z "$chown$chmod" ]; then return 0; fi
    changed
    show_attributes "$1"
    pinned=$1
    if [ -z "$2$CHECK" ]; then pin "$1"; fi
    # chown can clear the set-id bits, so it goes first.
    if [ "$chown" ]; then
        # shellcheck disable=SC2086 # Empty, or the one word -h.
        mutate chown $2 "$chown" "$pinned" || fail "cannot change the owner of $1 to $chown"
    fi
    # Without the leading zeros chmod leaves the set-id bits of a directory as they are.
    if [ "$chmod" ]; then mutate chmod "00$chmod" "$pinned" || fail "cannot set the mode of $1 to $chmod"; fi
    exec 8<&-
}
