# shellcheck shell=sh disable=SC2034,SC2154
# How the domains of the names "$@" are, a line each; and which domains etcdrun has made, for whom.

states() {
    for name in "$@"; do
        printf '%s=%s\n' "$name" "$(vir domstate "$name" 2>/dev/null || printf 'absent')"
    done
}

# The cluster, the state and the name of each domain with our mark.
made() {
    vir list --all --name | while IFS= read -r name; do
        if [ -z "$name" ]; then continue; fi
        mark=$(vir dumpxml --inactive "$name" 2>/dev/null | sed -n '/<metadata/,/<.metadata/p')
        case $mark in *"$arg_namespace"*) ;; *) continue ;; esac
        cluster=$(printf '%s\n' "$mark" | sed -n "s/.* cluster=[\"']\([^\"']*\)[\"'].*/\1/p" | sed -n 1p)
        printf '%s\t%s\t%s\n' "$cluster" "$(vir domstate "$name" 2>/dev/null)" "$name"
    done
}

need_libvirt
result states "$(states "$@")"
result made "$(made)"
