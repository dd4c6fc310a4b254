# shellcheck shell=sh disable=SC2154
# Sends the file $arg_path.
[ -e "$arg_path" ] || fail "$arg_path does not exist"
[ -f "$arg_path" ] || fail "$arg_path is not a regular file"
[ -r "$arg_path" ] || fail "$arg_path cannot be read"
printf '%s file\n' "$_nonce" >&3
cat <"$arg_path" >&3
status=$?
printf '%s endtext\n' "$_nonce" >&3
[ "$status" = 0 ] || fail "cannot read $arg_path"
if have sha256sum; then
	sum=$(sha256sum <"$arg_path")
	result sha256 "${sum%% *}"
fi
