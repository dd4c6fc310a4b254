# shellcheck shell=sh disable=SC2034,SC2154
# Looks for the SSH host keys of a guest: where cloud-init prints them to the console, or by the guest's agent. Waits for
# them $arg_wait seconds; $arg_uuid says which guest is meant.

kinds='ssh-ed25519|ecdsa-sha2-nistp256|ecdsa-sha2-nistp384|ecdsa-sha2-nistp521|ssh-rsa'

# Sets $keys to the keys that were printed last, one a line.
read_console() {
    keys=''
    [ "$arg_console" ] || return
    for log in "$arg_console" "$arg_console.0"; do
        # Most looks find nothing, and a guest that boots beside them has better use for the processor.
        grep -qs 'END SSH HOST KEY KEYS' "$log" || continue
        keys=$(tr -d '\r' <"$log" | last_block | grep -oE "($kinds) [A-Za-z0-9+/]+=*" | sort -u)
        [ -z "$keys" ] || return
    done
}

# What stands between the last pair of cloud-init's marks.
last_block() {
    block='' inside=''
    while IFS= read -r line; do
        case $line in
        *BEGIN\ SSH\ HOST\ KEY\ KEYS*) block='' inside=1 ;;
        *END\ SSH\ HOST\ KEY\ KEYS*) if [ "$inside" ]; then whole=$block inside=''; fi ;;
        *) if [ "$inside" ]; then block="$block$line
"; fi ;;
        esac
    done
    printf '%s' "${whole-}"
}

agent() {
    vir qemu-agent-command --timeout 2 "$arg_name" "$1" 2>/dev/null
}

# number NAME: reads a number out of the agent's answer on stdin.
number() {
    sed -n "s/.*\"$1\" *: *\([0-9]*\).*/\1/p"
}

# Sets $keys to what the agent reads from a file of the guest.
ask_agent() {
    keys=''
    [ "$arg_agent" ] || return
    agent '{"execute":"guest-ping"}' >/dev/null || return
    for kind in ed25519 ecdsa rsa; do
        file=/etc/ssh/ssh_host_${kind}_key.pub
        answer=$(agent "{\"execute\":\"guest-file-open\",\"arguments\":{\"path\":\"$file\",\"mode\":\"r\"}}") || continue
        handle=$(printf '%s' "$answer" | number return)
        [ "$handle" ] || continue
        text=$(agent "{\"execute\":\"guest-file-read\",\"arguments\":{\"handle\":$handle,\"count\":4096}}" |
            sed -n 's/.*"buf-b64" *: *"\([^"]*\)".*/\1/p' | base64 -d 2>/dev/null | grep -oE "^($kinds) [A-Za-z0-9+/]+=*")
        agent "{\"execute\":\"guest-file-close\",\"arguments\":{\"handle\":$handle}}" >/dev/null
        if [ "$text" ]; then keys="$keys${keys:+
}$text"; fi
    done
}

need_libvirt
have_uuid=$(vir domuuid "$arg_name" 2>/dev/null) || fail "there is no domain $arg_name on this host"
if [ "$have_uuid" != "$arg_uuid" ]; then fail "the domain $arg_name has the UUID $have_uuid, not $arg_uuid"; fi
if [ "$arg_console" ] && [ -e "$arg_console" ] && [ ! -r "$arg_console" ]; then
    fail "this user cannot read the guest's console in $arg_console; use become"
fi
left=$arg_wait looks=0
while :; do
    read_console
    # Where the keys come by the console, libvirt is asked now and then, and in the end.
    if [ -z "$keys" ] && { [ $((looks % 5)) -eq 0 ] || [ "$left" -eq 0 ] || [ -z "$arg_console" ]; }; then
        state=$(vir domstate "$arg_name")
        ask_agent
    fi
    if [ "$keys" ]; then result keys "$keys"; exit 0; fi
    case $state in running | paused) ;; *) fail "the guest $arg_name does not run: $state" ;; esac
    [ "$left" -gt 0 ] || break
    left=$((left - 1)) looks=$((looks + 1))
    sleep 1
done
result state "$state"
if [ "$arg_console" ]; then result tail "$(tail -n 5 "$arg_console" 2>/dev/null | tr -cd '[:print:]\n')"; fi
