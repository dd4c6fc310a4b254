# shellcheck shell=sh disable=SC2154
# Puts a new key and its certificate into the place of the old ones, one right after the other.

changed
mutate mv -f -- "$arg_key.next" "$arg_key" || fail "cannot replace $arg_key"
mutate mv -f -- "$arg_certificate.next" "$arg_certificate" || fail "cannot replace $arg_certificate"
