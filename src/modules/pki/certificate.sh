# shellcheck shell=sh disable=SC2034,SC2154
# Says what is there, and mends owner and mode of it.

# look_at NAME PATH MODE
look_at() {
    if [ ! -f "$2" ]; then
        if [ -e "$2" ]; then fail "$2 is not a regular file"; fi
        return 1
    fi
    arg_mode=$3
    apply_attributes "$2" ''
    sum=$(sha256sum < "$2") || fail "cannot read $2"
    result "$1_sha256" "${sum%% *}"
}

if look_at authority "$arg_authority" 644; then :; fi
if look_at key "$arg_key" 600; then :; fi
if look_at certificate "$arg_certificate" 644; then
    text=$(cat "$arg_certificate") || fail "cannot read $arg_certificate"
    result certificate "$text"
fi
