# shellcheck shell=sh disable=SC2154
# Says what is in a file, so that the operator can edit it. Behind attributes.sh.

resolve_path "$arg_path"
refuse_strange_links "$path" ''
if [ -d "$path" ]; then fail "$path is a directory"; fi
if [ ! -e "$path" ]; then
    result_bool exists false
    exit 0
fi
if [ ! -f "$path" ]; then fail "$path is not a regular file"; fi
result_bool exists true
content=$(base64 < "$path") || fail "cannot read $path"
result content "$content"
apply_attributes "$path" ''
