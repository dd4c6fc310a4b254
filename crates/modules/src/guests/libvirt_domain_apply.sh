# shellcheck shell=sh disable=SC2154
# Makes a domain what was decided. Each of "$@" is a device that a running domain gets at once, `attach XML` or `update XML`.

if [ "$arg_remove" ]; then
    case $(vir domstate "$arg_name") in
    'shut off' | crashed) ;;
    *) vir destroy "$arg_name" >/dev/null || fail "cannot stop the domain $arg_name" ;;
    esac
    vir undefine --nvram "$arg_name" >/dev/null 2>&1 || vir undefine "$arg_name" >/dev/null || fail "cannot undefine $arg_name"
    exit 0
fi
if [ "$arg_xml" ]; then
    if [ "$arg_console" ]; then mkdir -p "${arg_console%/*}" || fail "cannot create the directory of $arg_console"; fi
    printf '%s\n' "$arg_xml" | vir define --validate /dev/stdin >/dev/null || fail "libvirt rejects the definition of $arg_name"
fi
later=0
for device in "$@"; do
    said=$(printf '%s\n' "${device#* }" | vir "${device%% *}-device" "$arg_name" /dev/stdin --live 2>&1) && continue
    case $said in
    # It is defined, so that a restart brings it.
    *"No more available PCI slots"*) later=$((later + 1)) ;;
    *) fail "cannot change a device of $arg_name while it runs: $said" ;;
    esac
done
result later "$later"
case $arg_autostart in
on) vir autostart "$arg_name" >/dev/null || fail "cannot enable autostart of $arg_name" ;;
off) vir autostart --disable "$arg_name" >/dev/null || fail "cannot disable autostart of $arg_name" ;;
esac
case $arg_power in
start) vir start "$arg_name" >/dev/null || fail "cannot start the domain $arg_name" ;;
esac
