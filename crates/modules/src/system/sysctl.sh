# shellcheck shell=sh disable=SC2154

# Sets $live_path to the file of the setting. Dots separate, unless a slash came first, as in
# net/ipv4/conf/eth0.1/forwarding.
find_live() {
    live_path=/proc/sys/ rest=$arg_name
    case ${arg_name%%[./]*} in "$arg_name") ;; *)
        first=${arg_name#"${arg_name%%[./]*}"}
        case $first in /*) live_path=/proc/sys/$arg_name; return ;; esac
        ;;
    esac
    while :; do
        case $rest in
        *[./]*)
            part=${rest%%[./]*}
            rest=${rest#"$part"}
            # A slash in the dotted spelling is a dot in the name.
            case $rest in .*) live_path=$live_path$part/ ;; *) live_path=$live_path$part. ;; esac
            rest=${rest#?}
            ;;
        *) live_path=$live_path$rest; return ;;
        esac
    done
}

# squeeze TEXT: sets $squeezed; the kernel separates with tabs what people separate with spaces.
squeeze() {
    set -f
    # shellcheck disable=SC2086 # Splitting is the point.
    set -- $1
    set +f
    squeezed=$*
}

read_live() {
    if [ ! -e "$live_path" ]; then
        [ "$arg_state" = present ] && [ -z "$arg_ignoreerrors" ] || return 1
        [ "$CHECK" ] || fail "the kernel has no setting $arg_name ($live_path does not exist)"
        note "the kernel has no setting $arg_name yet"
        return 1
    fi
    live=$(cat "$live_path") || fail "cannot read $live_path"
    squeeze "$live"
    live=$squeezed
}

# Sets $edited to $text with one line for the setting, or none.
edit_text() {
    edited='' written=''
    while IFS= read -r line; do
        key=${line%%=*}
        squeeze "$key"
        if [ "${squeezed#-}" = "$arg_name" ] && [ "$key" != "$line" ]; then
            [ "$written" ] && continue
            written=1
            [ "$arg_state" = present ] || continue
            squeeze "${line#*=}"
            # A line that says the same in other spacing stays as it was written.
            [ "$squeezed" = "$value" ] || line="$arg_name = $value"
        fi
        edited=$edited$line$nl
    done <<TEXT
$text
TEXT
    # The here-document added one empty line to the end.
    edited=${edited%"$nl"}
    if [ "$arg_state" = present ] && [ -z "$written" ]; then edited="$edited$arg_name = $value$nl"; fi
}

write_live() {
    printf '%s\n' "$value" >"$live_path"
}

wants_live() {
    [ "$arg_state" = present ] || return
    [ "$arg_sysctl_set" ] || { [ "$arg_reload" ] && [ "$file_changed" ]; }
}

set_live() {
    [ "$live" != "$value" ] || return 0
    changed
    printf '%s\n' "$live" | show_before "$live_path"
    printf '%s\n' "$value" | show_after "$live_path"
    if mutate write_live; then
        live=$value
    elif [ -z "$arg_ignoreerrors" ]; then
        fail "the kernel does not take $value for $arg_name"
    fi
}

find_live
squeeze "$arg_value"
value=$squeezed
read_text "$arg_sysctl_file"
edit_text
file_changed=''
if [ "$edited" != "$text" ]; then file_changed=1; fi
result name "$arg_name"
# The kernel goes first: what it does not take should not wait in a file for the next boot.
if read_live; then
    if wants_live; then set_live; fi
    result value "$live"
fi
if [ "$file_changed" ]; then replace_text "$arg_sysctl_file" "$text" "$edited"; fi
