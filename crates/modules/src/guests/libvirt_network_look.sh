# shellcheck shell=sh disable=SC2154

need_libvirt
xml=$(vir net-dumpxml --inactive "$arg_name" 2>/dev/null) || exit 0
result xml "$xml"
info=$(vir net-info "$arg_name") || fail "cannot inspect the network $arg_name"
field Active "$info"
result active "$value"
if [ "$value" = yes ]; then result live_xml "$(vir net-dumpxml "$arg_name")"; fi
field Autostart "$info"
result autostart "$value"
