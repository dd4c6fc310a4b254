# shellcheck shell=sh disable=SC2034,SC2154
# Brings a file from a URL with what this host has. In front of place.sh.
#
# The URL and the headers may hold secrets: they reach the program on its stdin.

# Sets $tool. The wget of busybox takes no URL on stdin and checks no certificate, so it is not used.
choose_tool() {
    tool=''
    if have curl; then
        tool=curl
    elif [ -z "$arg_has_headers" ] && have wget && wget --version > /dev/null 2>&1; then
        tool=wget
    fi
    [ "$tool" ]
}

fetch_url() {
    case $tool in
    curl) printf '%s' "$arg_curl" | curl -q -fsSL -K - ;;
    wget) printf '%s\n' "$arg_url" | wget -q -O - -i - --timeout="$arg_timeout" ;;
    esac || hand_over "$tool could not download it"
}

# Lets the operator download it, where that is allowed; $1 says why.
hand_over() {
    if [ "$new" ] && [ -e "$new" ]; then rm -f "$new"; fi
    if [ "$arg_via" = target ]; then fail "$1"; fi
    result_bool wanted 1
    exit 0
}

before_download() {
    new=''
    if [ "$CHECK" ]; then
        if [ "$existing" ] && [ -z "$arg_sha256" ]; then
            unknown "without a checksum the file must be downloaded to be compared"
            exit 0
        fi
        changed
    elif [ "$arg_via" = operator ] || ! choose_tool; then
        hand_over "this host has neither curl nor GNU wget"
    fi
}

check_download() {
    checksum "$new"
    if [ "$arg_sha256" ] && [ "$sum" != "$arg_sha256" ]; then
        give_up "the download has the sha256 $sum, expected $arg_sha256"
    fi
    result sha256 "$sum"
    if [ "$existing" ] && [ -z "$arg_sha256" ]; then
        downloaded=$sum
        checksum "$dest"
        if [ "$sum" = "$downloaded" ]; then
            rm -f "$new"
            apply_attributes "$dest" ''
            exit 0
        fi
    fi
    changed
}
