# shellcheck shell=sh disable=SC2154
# A snapshot that has come to $arg_dest.part: whole, it gets its name; otherwise it goes.

part=$arg_dest.part
give_up() {
    rm -f "$part"
    fail "the snapshot is incomplete: $1"
}
size=$(wc -c < "$part") || fail "cannot read $part"
[ "$((size % 512))" -eq 32 ] || give_up "$size bytes are no database and its checksum"
sum=$(head -c "$((size - 32))" "$part" | sha256sum) || fail "cannot read $part"
sum=${sum%% *}
end=$(tail -c 32 "$part" | od -A n -v -t x1 | tr -d ' \n')
[ "$sum" = "$end" ] || give_up "its checksum does not match"
sync "$part" 2> /dev/null || sync
mv -f "$part" "$arg_dest" || fail "cannot rename $part"
sync "${arg_dest%/*}" 2> /dev/null || sync
changed
result_int size "$size"
result sha256 "$sum"
