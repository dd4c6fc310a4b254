# shellcheck shell=sh disable=SC2034,SC2154
# Base images: volumes whose contents are known by a checksum. $arg_step is `ask` (is it wanted, and how much of it is here
# already?), `url` (the host brings it by itself) or `place` (all of it is here).
#
# What has arrived so far is kept beside the volume, so that a transfer which broke off goes on where it was.

sums=/var/lib/etcdrun/sums

# A checksum takes seconds, so it is kept for as long as the file is the same by inode, size and time.
image_sum() {
    stamp=$(stat -c '%i %s %Y' "$path")
    key=$(printf '%s' "$path" | sha256sum)
    kept=$sums/${key%% *}
    if [ -r "$kept" ]; then
        read -r inode bytes time sum <"$kept"
        if [ "$inode $bytes $time" = "$stamp" ]; then return; fi
    fi
    sum=$(sum_of_much <"$path") || fail "cannot read $path"
    sum=${sum%% *}
    mutate keep_sum
}

keep_sum() {
    # Without the folder it is computed again next time.
    if mkdir -p "$sums" 2>/dev/null; then printf '%s %s\n' "$stamp" "$sum" >"$kept" 2>/dev/null || :; fi
}

compare() {
    image_sum
    if [ "$sum" = "$arg_sha256" ]; then exit 0; fi
    fail "the volume $arg_name exists with the sha256 $sum, not $arg_sha256; guests may be based on it, so give the new image another name"
}

place() {
    # Of what has just come in one piece it is known.
    got=$arg_got
    if [ -z "$got" ]; then got=$(sum_of_much <"$part") || fail "cannot read $part"; fi
    got=${got%% *}
    if [ "$got" != "$arg_sha256" ]; then
        rm -f "$part"
        fail "what arrived has the sha256 $got, expected $arg_sha256"
    fi
    chmod 644 "$part"
    mv "$part" "$path" || fail "cannot put the image into place"
    stamp=$(stat -c '%i %s %Y' "$path")
    key=$(printf '%s' "$path" | sha256sum)
    kept=$sums/${key%% *} sum=$got
    keep_sum
    vir pool-refresh "$arg_pool" >/dev/null 2>&1 || :
    changed
}

# The URL may hold a password: it reaches the program on its stdin.
bring() {
    umask 077
    if have curl; then
        printf '%s' "$arg_curl" | curl -q -fsSL -C - -o "$part" -K - || fail "curl could not download it"
    elif have wget && wget --version >/dev/null 2>&1; then
        printf '%s\n' "$arg_url" | wget -q -c -O "$part" -i - || fail "wget could not download it"
    else
        fail "this host has neither curl nor GNU wget"
    fi
    place
}

need_libvirt
if [ "$CHECK" ] && ! read_pool "$arg_pool"; then
    changed
    note "the pool $arg_pool does not exist yet"
    exit 0
fi
need_pool "$arg_pool"
path=$pool_path/$arg_name
part=$pool_path/.etcdrun-part-$arg_name
result path "$path"
if [ -e "$path" ]; then compare; fi
case $arg_step in
ask)
    if [ "$CHECK" ]; then changed; fi
    result_bool wanted 1
    result part "$part"
    have_bytes=0
    if [ -e "$part" ]; then have_bytes=$(stat -c %s "$part"); fi
    result_int have "$have_bytes"
    ;;
url) bring ;;
place) place ;;
esac
