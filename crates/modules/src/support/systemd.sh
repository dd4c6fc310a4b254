# shellcheck shell=sh disable=SC2034,SC2154
# Talking to systemd: what state a unit is in, and bringing it into another.

have_systemd() {
    have systemctl && [ -d /run/systemd/system ]
}

need_systemd() {
    if have_systemd; then return; fi
    manager=''
    if [ -r /proc/1/comm ]; then read -r manager </proc/1/comm; fi
    fail "systemd does not run on this host${manager:+ (process 1 is $manager)}, so its units cannot be managed"
}

# Sets load_state, active_state, sub_state and unit_file_state of $unit.
read_unit() {
    load_state='' active_state='' sub_state='' unit_file_state=''
    properties=$(systemctl show -p LoadState -p ActiveState -p SubState -p UnitFileState -- "$unit") ||
        fail "cannot query systemd about $unit"
    while IFS='=' read -r key value; do
        case $key in
        LoadState) load_state=$value ;;
        ActiveState) active_state=$value ;;
        SubState) sub_state=$value ;;
        UnitFileState) unit_file_state=$value ;;
        esac
    done <<PROPERTIES
$properties
PROPERTIES
}

# unit_will KEY BEFORE AFTER: marks a change, for the diff and the result.
unit_will() {
    changed
    unit_before="$unit_before$1: $2
"
    unit_after="$unit_after$1: $3
"
}
unit_before='' unit_after=''

show_unit_change() {
    [ "$unit_before$unit_after" ] || return 0
    printf '%s' "$unit_before" | show_before "$unit"
    printf '%s' "$unit_after" | show_after "$unit"
}

# What the journal says is worth more than systemctl's advice to look there.
unit_failed() {
    systemctl status --no-pager --full --lines=0 -- "$unit" >&2
    # What it said last may be on its way there.
    journalctl --sync 2> /dev/null
    journalctl --unit "$unit" --lines 20 --output cat --no-pager >&2 2> /dev/null
    fail "$1"
}

set_masked() {
    [ "$load_state" != masked ] || return 0
    unit_will masked false true
    mutate systemctl mask --quiet -- "$unit" || fail "cannot mask $unit"
    [ "$CHECK" ] || read_unit
}

unset_masked() {
    case $load_state$unit_file_state in *masked*) ;; *) return 0 ;; esac
    unit_will masked true false
    mutate systemctl unmask --quiet -- "$unit" || fail "cannot unmask $unit"
    [ "$CHECK" ] || read_unit
}

# Whether the unit is started at boot; one without an [Install] section is as its owner left it.
is_enabled() {
    case $unit_file_state in
    enabled | enabled-runtime | static | alias | indirect | generated | transient) return 0 ;;
    esac
    return 1
}

set_enabled() {
    case $1 in
    true)
        if is_enabled; then return 0; fi
        unit_will enabled false true
        mutate systemctl enable --quiet -- "$unit" || fail "cannot enable $unit"
        ;;
    false)
        case $unit_file_state in enabled | enabled-runtime) ;; *) return 0 ;; esac
        unit_will enabled true false
        mutate systemctl disable --quiet -- "$unit" || fail "cannot disable $unit"
        ;;
    esac
}

is_running() {
    case $active_state in active | activating | reloading | refreshing) return 0 ;; esac
    return 1
}

# run_unit VERB STATE: STATE is what the unit is in afterwards.
run_unit() {
    unit_will state "$active_state" "$2"
    mutate systemctl "$1" -- "$unit" || unit_failed "cannot $1 $unit"
    # In check mode this is what it would be; otherwise it is read again.
    active_state=$2
}

set_state() {
    case $1 in
    started) is_running || run_unit start active ;;
    stopped)
        case $active_state in inactive | failed) ;; *) run_unit stop inactive ;; esac
        ;;
    restarted) run_unit restart active ;;
    reloaded) if is_running; then run_unit reload active; else run_unit start active; fi ;;
    esac
}

report_unit() {
    if [ -z "$CHECK" ] && [ "$unit_before$unit_after" ]; then read_unit; fi
    show_unit_change
    result name "$unit"
    result state "$active_state"
    result sub_state "$sub_state"
    result load_state "$load_state"
    result unit_file_state "$unit_file_state"
}
