# shellcheck shell=sh disable=SC2154
# Each of "$@" is a step.

# Keeps the UUID and the MAC address that libvirt gave the network when it was defined first.
define() {
    uuid=$(vir net-uuid "$arg_name" 2>/dev/null) || uuid=''
    if [ "$uuid" ]; then
        printf '%s\n' "$arg_xml" | sed "s:</name>:</name><uuid>$uuid</uuid>:"
    else
        printf '%s\n' "$arg_xml"
    fi | vir net-define /dev/stdin >/dev/null || fail "libvirt rejects the definition of the network $arg_name"
}

remove() {
    field Active "$(vir net-info "$arg_name")"
    if [ "$value" = yes ]; then vir net-destroy "$arg_name" >/dev/null || fail "cannot stop the network $arg_name"; fi
    vir net-undefine "$arg_name" >/dev/null || fail "cannot remove the network $arg_name"
}

for step in "$@"; do
    case $step in
    define) define ;;
    remove) remove ;;
    start) vir net-start "$arg_name" >/dev/null || fail "cannot start the network $arg_name" ;;
    autostart) vir net-autostart "$arg_name" >/dev/null || fail "cannot enable autostart of the network $arg_name" ;;
    no-autostart) vir net-autostart --disable "$arg_name" >/dev/null || fail "cannot change the network $arg_name" ;;
    esac
done
