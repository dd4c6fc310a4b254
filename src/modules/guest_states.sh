# shellcheck shell=sh disable=SC2034,SC2154
# How the domains of the names "$@" are, a line each.

states() {
    for name in "$@"; do
        printf '%s=%s\n' "$name" "$(vir domstate "$name" 2>/dev/null || printf 'absent')"
    done
}

need_libvirt
result states "$(states "$@")"
