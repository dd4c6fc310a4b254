# shellcheck shell=sh disable=SC2034,SC2154
# Starts a guest, shuts it down, or both.

look() {
    state=$(vir domstate "$arg_name" 2>/dev/null) || fail "there is no domain $arg_name on this host"
}

is_off() {
    case $state in 'shut off' | crashed) return 0 ;; esac
    return 1
}

# The agent is told if it answers, else the power button is pressed.
press() {
    vir shutdown --mode agent "$arg_name" >/dev/null 2>&1 || vir shutdown --mode acpi "$arg_name" >/dev/null
}

shut_down() {
    press || fail "cannot tell $arg_name to shut down"
    left=$arg_timeout
    while look && ! is_off; do
        if [ "$left" -le 0 ]; then
            [ "$arg_force" ] || fail "$arg_name did not shut down within $arg_timeout s; see its console, or power it off with \`force: true\`"
            vir destroy "$arg_name" >/dev/null || fail "cannot stop $arg_name"
        fi
        left=$((left - 1))
        sleep 1
    done
}

# The hypervisor may start it at the same time, because it has just booted.
start() {
    vir start "$arg_name" >/dev/null 2>&1 && return
    look
    is_off || return 0
    vir start "$arg_name" >/dev/null || fail "cannot start $arg_name"
}

need_libvirt
look
result was "$state"
if [ "$arg_state" != running ] && ! is_off; then
    changed
    mutate shut_down
fi
if [ "$arg_state" != shut_off ] && { is_off || [ "$arg_state" = restarted ]; }; then
    changed
    mutate start
fi
