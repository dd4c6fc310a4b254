# shellcheck shell=sh disable=SC2154
# The connection goes down with the machine; that must not stop what was begun.
trap '' HUP

default_reboot() {
    if have systemctl && [ -d /run/systemd/system ]; then
        systemctl reboot --message="$arg_msg"
    elif have shutdown; then
        shutdown -r now "$arg_msg"
    else
        reboot
    fi
}

changed
if [ "$arg_reboot_command" ]; then
    mutate sh -c "$arg_reboot_command"
else
    mutate default_reboot
fi || fail "the command to reboot failed"
