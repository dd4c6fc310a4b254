# shellcheck shell=bash
# until_holds SECONDS COMMAND...: again and again, until it goes well.
until_holds() {
    local end=$((SECONDS + $1))
    shift
    while ! "$@"; do
        if [ "$SECONDS" -ge "$end" ]; then
            echo "not in time: $*" >&2
            return 1
        fi
        sleep 0.1
    done
}
