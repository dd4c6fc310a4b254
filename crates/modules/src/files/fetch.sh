# shellcheck shell=sh disable=SC2154
# Says whether a file is there and what is in it, by its checksum. Behind attributes.sh.

resolve_path "$arg_src"
result path "$path"
if [ -d "$path" ]; then fail "$path is a directory; fetch supports only single files"; fi
if [ ! -e "$path" ]; then
    result_bool exists false
    exit 0
fi
if [ ! -f "$path" ]; then fail "$path is not a regular file"; fi
sum=$(sha256sum < "$path") || fail "cannot read $path"
size=$(wc -c < "$path") || fail "cannot read $path"
result_int size "$size"
result_bool exists true
result sha256 "${sum%% *}"
