# shellcheck shell=sh disable=SC2154

# Sets $found to the type of what the device holds: a file system, `a … partition table`, or nothing.
probe() {
    found='' kind='' table=''
    have blkid || fail "blkid is missing on the target, so it is unknown whether $arg_dev is blank"
    # 2 says that nothing was found, 8 that too much was.
    export=$(blkid -p -o export "$arg_dev")
    case $? in
    0 | 2) ;;
    8) found='several signatures'; return ;;
    *) fail "cannot read $arg_dev" ;;
    esac
    while IFS='=' read -r key value; do
        case $key in
        TYPE) kind=$value ;;
        PTTYPE) table=$value ;;
        esac
    done <<EXPORT
$export
EXPORT
    found=$kind
    if [ -z "$found" ] && [ "$table" ]; then found="a $table partition table"; fi
    # blkid hides what it finds doubtful; wipefs lists every trace.
    if [ -z "$found" ] && have wipefs && [ "$(wipefs -n "$arg_dev" 2>/dev/null)" ]; then found='traces of data'; fi
}

# A device that something uses is never formatted, whatever `force` says.
refuse_used() {
    real=$(readlink -f "$arg_dev") || real=$arg_dev
    while read -r _ _ _ _ point _ rest; do
        rest=" $rest" rest=${rest#* - }
        rest=${rest#* } source=${rest%% *}
        case $source in "$arg_dev" | "$real") fail "$arg_dev is mounted on $point" ;; esac
    done </proc/self/mountinfo
    while read -r area _; do
        case $area in "$arg_dev" | "$real") fail "$arg_dev is in use as swap" ;; esac
    done </proc/swaps
    for holder in "/sys/class/block/${real##*/}/holders"/*; do
        if [ -e "$holder" ]; then fail "$arg_dev is in use by ${holder##*/}"; fi
    done
    for backing in /sys/block/loop*/loop/backing_file; do
        [ -r "$backing" ] || continue
        read -r file <"$backing"
        if [ "$file" = "$real" ]; then fail "$arg_dev is in use by a loop device"; fi
    done
}

# Sets $maker to the tool, and $certain to the option that answers its questions.
choose_maker() {
    certain=''
    case $arg_fstype in
    swap) maker=mkswap certain=${arg_force:+-f} ;;
    ext[234]) maker=mkfs.$arg_fstype certain=-F ;;
    xfs | btrfs) maker=mkfs.$arg_fstype certain=${arg_force:+-f} ;;
    vfat) maker=mkfs.vfat certain=-I ;;
    esac
    if [ -z "$CHECK" ] && ! have "$maker"; then fail "$maker is missing on the target"; fi
}

# $@ are the options of the task.
create() {
    choose_maker
    changed
    printf '%s\n' "${found:-empty}" | show_before "$arg_dev"
    printf '%s\n' "$arg_fstype" | show_after "$arg_dev"
    # shellcheck disable=SC2086 # Empty, or one word.
    mutate "$maker" $certain "$@" "$arg_dev" || fail "cannot create a file system on $arg_dev"
}

device_size() {
    if [ -b "$arg_dev" ]; then size=$(blockdev --getsize64 "$arg_dev"); else size=$(stat -L -c %s "$arg_dev"); fi ||
        fail "cannot read the size of $arg_dev"
}

# The file system's own size, from its superblock.
ext_size() {
    blocks='' block_size=''
    superblock=$(dumpe2fs -h "$arg_dev" 2>/dev/null) || fail "cannot read the superblock of $arg_dev"
    while IFS=: read -r key value; do
        case $key in
        'Block count') blocks=${value##* } ;;
        'Block size') block_size=${value##* } ;;
        esac
    done <<SUPERBLOCK
$superblock
SUPERBLOCK
}

grow() {
    device_size
    ext_size
    # What is less than a block does not count.
    [ $((size / block_size)) -gt "$blocks" ] || return 0
    changed
    printf '%s blocks\n' "$blocks" | show_before "$arg_dev"
    printf '%s blocks\n' "$((size / block_size))" | show_after "$arg_dev"
    mutate grow_ext || fail "cannot grow the file system on $arg_dev"
}

# resize2fs wants a file system that is not mounted to be checked first.
grow_ext() {
    resize2fs "$arg_dev" && return
    e2fsck -f -p "$arg_dev"
    [ $? -le 1 ] && resize2fs "$arg_dev"
}

result dev "$arg_dev"
result fstype "$arg_fstype"
if [ ! -e "$arg_dev" ]; then
    [ "$CHECK" ] || fail "$arg_dev does not exist"
    unknown "$arg_dev does not exist yet"
    exit 0
fi
[ -b "$arg_dev" ] || [ -f "$arg_dev" ] || fail "$arg_dev is neither a block device nor a file"
probe
if [ "$found" = "$arg_fstype" ]; then
    if [ "$arg_resizefs" ]; then grow; fi
    exit 0
fi
refuse_used
if [ "$found" ] && [ -z "$arg_force" ]; then
    fail "$arg_dev contains $found; \`force: true\` would destroy it"
fi
create "$@"
