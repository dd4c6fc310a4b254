# shellcheck shell=sh disable=SC2034,SC2154
# Editing a small text file as a whole, with its lines in a variable.

nl='
'

# read_text PATH: sets $text to the file's lines, each with its end; nothing if there is no file.
read_text() {
    text=''
    [ -e "$1" ] || return 0
    [ -r "$1" ] || fail "cannot read $1"
    text=$(cat "$1") || fail "cannot read $1"
    text=$text${text:+$nl}
}

# replace_text PATH OLD NEW: shows the difference and writes the new text.
replace_text() {
    printf '%s' "$2" | show_before "$1"
    printf '%s' "$3" | show_after "$1"
    changed
    mutate write_text "$1" "$3" || fail "cannot write $1"
}

# write_text PATH TEXT: nobody ever sees half of the file; owner and mode stay.
write_text() {
    if [ -L "$1" ]; then set -- "$(readlink -f "$1")" "$2"; fi
    [ -d "${1%/*}" ] || mkdir -p "${1%/*}" || return
    new=$(mktemp "$1.XXXXXX") || return
    if [ -e "$1" ]; then cp -p "$1" "$new"; else chmod 0644 "$new"; fi &&
        printf '%s' "$2" >"$new" &&
        mv -f "$new" "$1" && return
    rm -f "$new"
    return 1
}
