# shellcheck shell=sh disable=SC2154
# The start of every module that runs a command: chdir, creates, removes, and no guess in check mode.

# Whether a path, or a pattern like /var/lib/*.db, names something.
exists() {
    if [ -e "$1" ] || [ -L "$1" ]; then return 0; fi
    saved=$IFS
    IFS=''
    # shellcheck disable=SC2086 # The pattern is to be expanded, and blanks are part of it.
    set -- $1
    IFS=$saved
    [ -e "$1" ]
}

leave_unchanged() {
    result_int rc 0
    note "$1"
    exit 0
}

if [ "$arg_chdir" ]; then
    if [ "$CHECK" ] && [ ! -d "$arg_chdir" ]; then
        unknown "the directory $arg_chdir does not exist yet"
        exit 0
    fi
    cd "$arg_chdir" || fail "cannot change to the directory $arg_chdir"
fi
if [ "$arg_creates" ] && exists "$arg_creates"; then leave_unchanged "not run, because $arg_creates exists"; fi
if [ "$arg_removes" ] && ! exists "$arg_removes"; then leave_unchanged "not run, because $arg_removes does not exist"; fi
