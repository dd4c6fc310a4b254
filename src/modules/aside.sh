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

# Gives a folder for data another name. One that is a disk of its own cannot be renamed: what is in it moves below.
set_data_aside() {
    name_aside "$1.removed"
    changed
    if ! mutate mv -T -- "$1" "$aside" 2> /dev/null; then
        entries=$(list_data "$1") || fail "cannot read $1"
        name_aside "$1/removed"
        mkdir -m 0700 -- "$aside" || fail "cannot set the data in $1 aside"
        printf '%s\n' "$entries" | while IFS= read -r entry; do mv -- "$entry" "$aside/" || exit 1; done ||
            fail "cannot move what is in $1 to $aside"
    fi
    mutate sync -f "${1%/*}"
    result aside "$aside"
}
