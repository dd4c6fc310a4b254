# shellcheck shell=sh disable=SC2154
# A new key and its certificate: both wait beside the old ones while a server uses those, and go into place together.

# Puts them into the place of the old ones, one right after the other.
take_pair() {
    changed
    take_staged "$arg_key"
    take_staged "$arg_certificate"
}

# Without a key there is nothing that a server could go on with.
put_pair() {
    if [ -f "$arg_key" ] && is_in_use; then
        changed
        note "the new key is staged until $arg_stage_for restarts"
    else
        take_pair
    fi
}
