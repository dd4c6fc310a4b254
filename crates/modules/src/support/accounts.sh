# shellcheck shell=sh disable=SC2034,SC2154
# Reading the account databases: the local files with the shell itself, then whatever else the
# system knows of (LDAP, sssd).

# find_entry DATABASE NAME: sets $entry to the line of that name, or to nothing.
find_entry() {
    entry=''
    while IFS= read -r line; do
        case $line in "$2":*) entry=$line; return ;; esac
    done <"/etc/$1"
    if have getent; then entry=$(getent "$1" "$2") || entry=''; fi
}

# find_number DATABASE NUMBER: sets $entry to the line whose third field is that number.
find_number() {
    entry=''
    while IFS= read -r line; do
        rest=${line#*:*:}
        case $rest in "$2":*) entry=$line; return ;; esac
    done <"/etc/$1"
    if have getent; then entry=$(getent "$1" "$2") || entry=''; fi
}

# need_tool NAME: a clear word where the tools of Linux accounts are missing.
need_tool() {
    [ "$CHECK" ] || have "$1" || fail "$1 is missing on the target (package passwd or shadow-utils)"
}

# differs ATTRIBUTE BEFORE AFTER: remembers a difference for the diff.
before='' after=''
differs() {
    before="$before$1: $2
"
    after="$after$1: $3
"
}

show_differences() {
    printf '%s' "$before" | show_before "$1"
    printf '%s' "$after" | show_after "$1"
}
