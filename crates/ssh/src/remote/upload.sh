# shellcheck shell=sh disable=SC2154
# Receives a file on stdin into the staging folder $arg_folder, under the name $arg_name.
umask 077
folder=${TMPDIR:-/tmp}/$arg_folder
_have_private "$folder" || fail "cannot create a private staging directory $folder"
cat >"$folder/$arg_name" || fail "cannot write $folder/$arg_name"
result folder "$folder"
result_int size "$(wc -c <"$folder/$arg_name")"
if have sha256sum; then
	sum=$(sha256sum <"$folder/$arg_name")
	result sha256 "${sum%% *}"
fi
