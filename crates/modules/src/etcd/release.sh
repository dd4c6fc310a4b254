# shellcheck shell=sh disable=SC2154
# The server out of a release's tarball. Beside it a note says which tarball, and what the server's sum is.

note=$arg_dest.release

sum_of() {
    sum=$(sha256sum < "$1") || fail "cannot read $1"
    sum=${sum%% *}
}

is_installed() {
    [ -f "$arg_dest" ] && [ -f "$note" ] || return 1
    read -r tarball server < "$note" || return 1
    [ "$tarball" = "$arg_sha256" ] || return 1
    sum_of "$arg_dest"
    [ "$sum" = "$server" ]
}

# The name of the server inside of the tarball; there may be files that end alike.
server_in() {
    tar -tzf "$1" | while IFS= read -r name; do
        case $name in
        etcd | */etcd)
            printf '%s\n' "$name"
            break
            ;;
        esac
    done
}

result dest "$arg_dest"
if is_installed; then
    result sha256 "$server"
    exit 0
fi
changed
if [ -z "$arg_staged" ]; then
    result_bool wanted 1
    exit 0
fi
if [ "$CHECK" ]; then exit 0; fi
sum_of "$arg_staged"
[ "$sum" = "$arg_sha256" ] || fail "the release has the sha256 $sum, expected $arg_sha256"
new=$arg_dest.new
name=$arg_staged
if [ "$arg_tarball" ]; then
    have tar || fail "there is no tar on this host"
    name=$(server_in "$arg_staged")
    [ "$name" ] || fail "there is no etcd in $arg_staged"
    tar -xzOf "$arg_staged" "$name" > "$new" || fail "cannot unpack $name"
else
    cp "$arg_staged" "$new" || fail "cannot write $new"
fi
chmod 0755 "$new" || fail "cannot set the mode of $new"
sum_of "$new"
printf '%s %s\n' "$arg_sha256" "$sum" > "$note" || fail "cannot write $note"
mv -f "$new" "$arg_dest" || fail "cannot replace $arg_dest"
result sha256 "$sum"
