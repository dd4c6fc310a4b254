# shellcheck shell=sh disable=SC2034
# For what is set aside and not deleted.

# Sets `aside` to a name for it that begins like this and is free: something of that name may have gone aside in this second.
name_aside() {
    stamp=$1-$(date -u +%Y%m%dT%H%M%SZ)
    aside=$stamp
    number=1
    while [ -e "$aside" ] || [ -L "$aside" ]; do
        number=$((number + 1))
        aside=$stamp-$number
    done
}

# What is in a folder for data, but for what is set aside there already: a folder that is a disk of its own has that in it.
list_data() {
    [ -d "$1" ] || return 0
    find "$1" -mindepth 1 -maxdepth 1 ! -name lost+found ! -name 'removed-*' ! -name 'before-*'
}

# Runs the words behind $1 for each of what is in that folder for data, its path behind them. Whoever writes the data chooses the
# names, which may have newlines in them, so they are not taken from a list.
each_data() {
    folder=$1
    shift
    for entry in "$folder"/* "$folder"/.[!.]* "$folder"/..?*; do
        case ${entry##*/} in lost+found | removed-* | before-*) continue ;; esac
        if [ -e "$entry" ] || [ -L "$entry" ]; then "$@" "$entry" || return 1; fi
    done
}

move_aside() { mv -- "$1" "$aside/"; }

# Gives a folder for data another name. One that is a disk of its own cannot be renamed: what is in it moves below.
set_data_aside() {
    name_aside "$1.removed"
    changed
    if ! mutate mv -T -- "$1" "$aside" 2> /dev/null; then
        name_aside "$1/removed"
        mkdir -m 0700 -- "$aside" || fail "cannot move the data in $1 aside"
        each_data "$1" move_aside || fail "cannot move what is in $1 to $aside"
    fi
    mutate sync -f "${1%/*}"
    result aside "$aside"
}
