# shellcheck shell=sh disable=SC2154
# Unpacks an archive beside its destination and links the files into place. Behind attributes.sh.
#
# A hidden list of checksums in the destination says what was unpacked from which archive: the same
# archive is not needed again, and a file that was changed or lost since is noticed.

give_up() {
    rm -rf "$work"
    fail "$1"
}

# Whether every file of the archive is still what it was.
is_unpacked() {
    [ -f "$stamp" ] && (cd "$dest" && sha256sum -c "$stamp" > /dev/null 2>&1)
}

unpack() {
    if [ "$arg_strip" != 0 ]; then set -- "--strip-components=$arg_strip"; else set --; fi
    case $arg_format in
    tar) tar -xf "$archive" -C "$work" "$@" ;;
    gz) tar -xzf "$archive" -C "$work" "$@" ;;
    bz2) tar -xjf "$archive" -C "$work" "$@" ;;
    xz) tar -xJf "$archive" -C "$work" "$@" ;;
    zst) zstd -dcq "$archive" | tar -xf - -C "$work" "$@" ;;
    zip) unzip -q -o "$archive" -d "$work" ;;
    esac
}

need() {
    if ! have "$1"; then fail "this host has no $1, which a .$arg_format archive needs"; fi
}

# The tools that the format needs, said before anything is written.
check_tools() {
    case $arg_format in
    zip) need unzip ;;
    zst) need zstd ;;
    esac
    case $arg_format in zip) ;; *) need tar ;; esac
}

# Hard links cost nothing and replace a program that is running; a file system without them gets copies.
link_into_place() {
    cd "$work" || give_up "cannot change to $work"
    set --
    for entry in * .[!.]* ..?*; do
        if [ -e "$entry" ] || [ -L "$entry" ]; then set -- "$@" "./$entry"; fi
    done
    if [ $# -gt 0 ]; then
        cp -alf "$@" "$dest/" 2> /dev/null || cp -af "$@" "$dest/" || give_up "cannot put the files into $dest"
    fi
    cd / || give_up "cannot leave $work"
}

apply() {
    rm -rf "$work"
    (umask 077 && mkdir "$work") || fail "cannot write to $dest"
    unpack || give_up "cannot unpack $arg_name"
    if [ "$arg_owner$arg_group" ]; then
        chown -Rh "$arg_owner${arg_group:+:$arg_group}" "$work" || give_up "cannot change the owner of the files"
    fi
    list=$(cd "$work" && find . -type f -exec sha256sum {} +) || give_up "cannot read what was unpacked"
    link_into_place
    rm -rf "$work"
    printf '%s\n' "$list" > "$stamp" || fail "cannot write $stamp"
}

resolve_path "$arg_dest"
dest=${path%/}
dest=${dest:-/}
result dest "$dest"
if [ "$arg_creates" ]; then
    resolve_path "$arg_creates"
    if [ -e "$path" ]; then
        note "not unpacked, because $path exists"
        exit 0
    fi
fi
if [ ! -d "$dest" ]; then
    if [ -e "$dest" ]; then fail "$dest is not a directory"; fi
    if [ -z "$CHECK" ]; then fail "the directory $dest does not exist"; fi
    note "the directory $dest does not exist yet"
fi
case $dest in /*) ;; *) if [ -d "$dest" ]; then dest=$(cd "$dest" && pwd); fi ;; esac
archive=$arg_archive
if [ "$arg_remote" ]; then
    resolve_path "$arg_archive"
    archive=$path
    if [ ! -f "$archive" ]; then
        if [ -z "$CHECK" ]; then fail "$archive is not a file on this host"; fi
        unknown "$archive does not exist yet"
        exit 0
    fi
    sum=$(sha256sum < "$archive") || fail "cannot read $archive"
    arg_sha256=${sum%% *}
fi
short=${arg_sha256#????????????????}
stamp=$dest/.etcdrun-${arg_sha256%"$short"}-$arg_variant.sha256
work=$dest/.etcdrun.$$
if is_unpacked; then exit 0; fi
if [ -z "$archive" ] && [ -z "$CHECK" ]; then
    check_tools
    result_bool wanted true
    exit 0
fi
check_tools
changed
mutate apply
