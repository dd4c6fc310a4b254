# shellcheck shell=sh disable=SC2034,SC2154
# Disks of guests: empty ones, and overlays on a base image.

# read_image FILE: sets $size, $format and $backing. The image may be in use, so it is not locked.
read_image() {
    info=$(qemu-img info -U "$1") || fail "cannot read the image $1"
    format=$(printf '%s\n' "$info" | sed -n 's/^file format: //p')
    size=$(printf '%s\n' "$info" | sed -n 's/^virtual size: .*(\([0-9]*\) bytes)$/\1/p')
    backing=$(printf '%s\n' "$info" | sed -n 's/^backing file: //p')
    backing=${backing%% (actual path: *}
}

# Sets $volumes to the names of the volumes in a pool.
name_volumes() {
    # shellcheck disable=SC2046 # Names of volumes that have blanks in them only look strange in the message.
    as_list $(vir vol-list "$1" | while read -r name _; do printf '%s\n' "$name"; done)
    volumes=$list
}

refresh_pool() {
    for _ in 1 2 3 4 5; do
        vir pool-refresh "$1" >/dev/null 2>&1 && return
        # Another volume of the pool is being made.
        sleep 0.2
    done
    vir pool-refresh "$1" >/dev/null || fail "cannot refresh the pool $1"
}

# Sets $base to the path of the base image, with its $base_format and $base_size.
find_base() {
    base='' base_format='' base_size=0
    if [ "$arg_base_path" ]; then
        base=$arg_base_path
        [ -r "$base" ] || { missing_base "there is no base image $base on this host"; return; }
    elif [ "$arg_base_name" ]; then
        base_pool=${arg_base_pool:-$arg_pool}
        base=$(vir vol-path --pool "$base_pool" "$arg_base_name" 2>/dev/null) || base=''
        if [ -z "$base" ]; then
            read_pool "$base_pool" || { missing_base "there is no pool $base_pool on this host"; return; }
            if [ -z "$CHECK" ]; then refresh_pool "$base_pool"; fi
            base=$(vir vol-path --pool "$base_pool" "$arg_base_name" 2>/dev/null) || base=''
        fi
        if [ -z "$base" ]; then
            name_volumes "$base_pool"
            missing_base "there is no volume $arg_base_name in the pool $base_pool; there are: $volumes"
            return
        fi
    else
        return
    fi
    read_image "$base"
    base_format=$format base_size=$size
}

# In a plan the base may be what an earlier task would bring.
missing_base() {
    [ "$CHECK" ] || fail "$1"
    note "$1 yet"
    base=${arg_base_path:-$arg_base_name}
}

describe() {
    printf 'format: %s\nsize: %s\nbase: %s\n' "$1" "$2" "${3:-none}"
}

make_volume() {
    find_base
    new_size=${arg_size:-$base_size}
    if [ "$new_size" = 0 ] && [ -z "$base" ]; then fail "the volume $arg_name needs a size, because it has no base image"; fi
    if [ "$new_size" -lt "$base_size" ]; then
        fail "the base image has $base_size bytes, more than the $new_size that $arg_name is to have"
    fi
    changed
    show_before "volume $arg_pool/$arg_name" </dev/null
    describe "$arg_format" "$new_size" "$base" | show_after "volume $arg_pool/$arg_name"
    if [ "$CHECK" ]; then return; fi
    new=$pool_path/.etcdrun-new-$arg_name
    rm -f "$new"
    umask 077
    set -- create -q -f "$arg_format"
    if [ "$base" ]; then set -- "$@" -b "$base" -F "$base_format"; fi
    if [ "$arg_preallocation" ]; then set -- "$@" -o "preallocation=$arg_preallocation"; fi
    qemu-img "$@" "$new" "$new_size" || { rm -f "$new"; fail "cannot create the volume $arg_name"; }
    mv "$new" "$path" || { rm -f "$new"; fail "cannot put the volume $arg_name into place"; }
    refresh_pool "$arg_pool"
}

# Sets $user to the domain that has the volume, and $active if that is running.
find_user() {
    user='' active=''
    for domain in $(vir list --all --name); do
        vir domblklist "$domain" | grep -qwF -- "$path" || continue
        user=$domain
        [ "$(vir domstate "$domain")" = 'shut off' ] || active=1
        return
    done
}

grow() {
    changed
    describe "$format" "$size" "$backing" | show_before "volume $arg_pool/$arg_name"
    describe "$format" "$arg_size" "$backing" | show_after "volume $arg_pool/$arg_name"
    if [ "$CHECK" ]; then return; fi
    find_user
    if [ "$active" ]; then
        vir blockresize "$user" "$path" "${arg_size}B" >/dev/null || fail "cannot grow $path while $user runs"
        note "the file system in it keeps its size until it is grown in the guest"
    else
        qemu-img resize -q -f "$format" "$path" "$arg_size" || fail "cannot grow $path"
    fi
    refresh_pool "$arg_pool"
}

rebuild() {
    reasons="$reasons${reasons:+; }$1"
}

compare() {
    read_image "$path"
    reasons=''
    was_size=$size was_format=$format was_backing=$backing
    find_base
    size=$was_size format=$was_format backing=$was_backing
    if [ "$format" != "$arg_format" ]; then rebuild "$arg_name has the format $format, not $arg_format"; fi
    if [ "$backing" != "$base" ]; then rebuild "$arg_name is based on ${backing:-nothing}, not on ${base:-nothing}"; fi
    if [ "$reasons" ]; then
        result_bool needs_rebuild 1
        result reason "$reasons"
        note "needs a rebuild: $reasons"
    fi
    if [ -z "$arg_size" ] || [ "$arg_size" = "$size" ]; then return; fi
    if [ "$arg_size" -lt "$size" ]; then
        fail "$arg_name has $size bytes, and a volume is never made smaller (to $arg_size): what is in it could be lost"
    fi
    grow
}

present() {
    if [ "$CHECK" ] && ! read_pool "$arg_pool"; then
        changed
        note "the pool $arg_pool does not exist yet"
        exit 0
    fi
    need_pool "$arg_pool"
    path=$pool_path/$arg_name
    result path "$path"
    result_bool needs_rebuild ''
    if [ -e "$path" ]; then compare; else make_volume; fi
}

absent() {
    read_pool "$arg_pool" || exit 0
    need_pool "$arg_pool"
    path=$pool_path/$arg_name
    result path "$path"
    [ -e "$path" ] || exit 0
    find_user
    if [ "$user" ]; then fail "the volume $arg_name is a disk of $user; undefine that first"; fi
    changed
    describe_old | show_before "volume $arg_pool/$arg_name"
    show_after "volume $arg_pool/$arg_name" </dev/null
    if [ "$CHECK" ]; then return; fi
    refresh_pool "$arg_pool"
    vir vol-delete --pool "$arg_pool" "$arg_name" >/dev/null || fail "cannot delete the volume $arg_name"
}

describe_old() {
    read_image "$path"
    describe "$format" "$size" "$backing"
}

need_libvirt
have qemu-img || fail "qemu-img is not installed on this host; on Debian it is in qemu-utils"
"$arg_state"
