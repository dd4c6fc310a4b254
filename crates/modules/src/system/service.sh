# shellcheck shell=sh disable=SC2154

unit=$arg_name
need_systemd
if [ "$arg_daemon_reload" ]; then
    mutate systemctl daemon-reload || fail "systemd cannot reload its configuration"
fi
read_unit
if [ "$load_state" = not-found ]; then
    [ "$CHECK" ] || fail "the target has no unit $unit"
    unknown "the target has no unit $unit yet"
    exit 0
fi
# A masked unit cannot be started, and one that is to be masked stops more cleanly before.
if [ "$arg_masked" = false ]; then unset_masked; fi
set_enabled "$arg_enabled"
set_state "$arg_state"
if [ "$arg_masked" = true ]; then set_masked; fi
report_unit
