# shellcheck shell=sh disable=SC2034,SC2154

unit=$arg_name
if [ "$arg_dropin" ]; then
    folder=$arg_directory/$unit.d
    file=$folder/$arg_dropin
else
    folder=$arg_directory
    file=$folder/$unit
fi

# Only the new text is judged, not the units it depends on.
verify() {
    # That takes a file to read, and a plan makes none.
    if [ "$CHECK" ] || [ -z "$arg_verify" ] || ! have systemd-analyze; then return 0; fi
    tmp_dir
    scratch=$TMP/units
    mkdir -p "$scratch/$unit.d" || fail "cannot write to $scratch"
    if [ "$arg_dropin" ]; then
        [ -e "$arg_directory/$unit" ] || return 0
        cp "$arg_directory/$unit" "$scratch/$unit" || fail "cannot read $arg_directory/$unit"
        printf '%s' "$arg_content" >"$scratch/$unit.d/$arg_dropin"
    else
        printf '%s' "$arg_content" >"$scratch/$unit"
    fi
    # Before version 250 there is no such option, and only the unit itself counts.
    only=''
    case $(systemd-analyze --help) in *--recursive-errors*) only=--recursive-errors=no ;; esac
    # shellcheck disable=SC2086 # Empty, or one word.
    systemd-analyze --man=no $only verify "$scratch/$unit" >&2
    verdict=$?
    rm -rf "$scratch"
    [ "$verdict" = 0 ] || fail "systemd does not accept the unit $file"
}

reload() {
    if have_systemd; then mutate systemctl daemon-reload || fail "systemd cannot reload its configuration"; fi
}

# What differs is shown as it is going to be.
stage_text() {
    note "$file stays as it is until $unit restarts"
    printf '%s' "$text" | show_before "$file"
    printf '%s' "$arg_content" | show_after "$file"
    changed
    read_text "$file.next"
    if [ "$text" != "$arg_content" ]; then mutate write_text "$file.next" "$arg_content" || fail "cannot write $file.next"; fi
}

present() {
    read_text "$file"
    if [ "$text" = "$arg_content" ]; then
        drop_staged "$file"
    else
        verify
        if is_in_use; then
            stage_text
        else
            drop_staged "$file"
            replace_text "$file" "$text" "$arg_content"
            reload
        fi
    fi
    [ "$arg_enabled$arg_state_wanted" ] || return 0
    need_systemd
    read_unit
    # In check mode a new unit is not there yet, and then it is neither enabled nor running.
    if [ "$CHECK" ] && [ "$load_state" = not-found ]; then active_state=inactive; fi
    set_enabled "$arg_enabled"
    set_state "$arg_state_wanted"
    report_unit
}

# A unit that goes away is stopped and disabled first, while systemd still knows how.
absent() {
    [ -e "$file" ] || [ -L "$file" ] || return 0
    if [ -z "$arg_dropin" ] && have_systemd; then
        read_unit
        set_state stopped
        set_enabled false
        show_unit_change
    fi
    read_text "$file"
    printf '%s' "$text" | show_before "$file"
    printf '' | show_after "$file"
    changed
    mutate rm -f "$file" "$file.next" || fail "cannot remove $file"
    if [ "$arg_dropin" ] && [ -z "$CHECK" ]; then rmdir "$folder" 2>/dev/null || :; fi
    reload
}

result path "$file"
"$arg_state"
