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

# What waits for a restart is what counts, and where nothing runs it need not wait.
next=''
if [ "$arg_stage_for" ] && [ -f "$arg_key.next" ] && [ -f "$arg_certificate.next" ]; then
    next=.next
    if ! is_in_use; then
        take_pair
        if [ -z "$CHECK" ]; then next=''; fi
    fi
fi
# Half a pair: the key is written first and taken first.
if [ "$arg_stage_for" ] && [ -z "$next" ]; then
    if [ ! -f "$arg_certificate.next" ]; then drop_staged "$arg_key"; fi
    if [ ! -f "$arg_key.next" ]; then take_staged "$arg_certificate"; fi
fi
if [ "$next" ]; then result_bool staged 1; fi
if [ -f "$arg_key.next" ]; then result_bool key_waits 1; fi
if [ "$arg_stage_for" ] && [ -f "$arg_authority.next" ]; then result_bool authority_staged 1; fi
if look_at authority "$arg_authority" 644; then :; fi
if look_at key "$arg_key$next" 600; then :; fi
if look_at certificate "$arg_certificate$next" 644; then
    text=$(cat "$arg_certificate$next") || fail "cannot read $arg_certificate$next"
    result certificate "$text"
fi
result clock "$(date +%s)"
