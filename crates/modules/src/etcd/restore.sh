# shellcheck shell=sh disable=SC2154
# The data folder of a member that is restored: the new one is made beside the old one, then takes its place. What was there
# is set aside, and nothing of it is deleted. Only the folder `member` moves, so that a lost+found beside it stays.

data=${arg_data_dir%/}
note=$data.restored-$arg_token

# A folder that is a mount point cannot be renamed, and what is inside of it cannot leave it by a rename.
find_places() {
    above=${data%/*}
    inside=$data.
    if [ -d "$data" ] && [ "$(stat -c %d "$data")" != "$(stat -c %d "${above:-/}")" ]; then
        inside=$data/
    fi
    new=${inside}restore-$arg_token
}

is_over() {
    [ -e "$note" ] && [ ! -e "$new" ]
}

# What restores have left that broke off. One of them may still be wanted by somebody who wants to go on with it.
find_others() {
    list=''
    for other in "$inside"restore-*; do
        if [ -d "$other" ] && [ "$other" != "$new" ]; then list="$list${list:+ }$other"; fi
    done
    printf '%s' "$list"
}

make_room() {
    if is_over; then
        result_bool over 1
        return 0
    fi
    changed
    if [ "$CHECK" ]; then return 0; fi
    above=${new%/*}
    mkdir -p "$above" || fail "cannot create $above"
    others=$(find_others)
    result others "$others"
    free=$(df -Pk "$above" | while read -r _ _ _ free _; do case $free in *[!0-9]*) ;; *) echo "$free" ;; esac; done)
    needed=$((arg_size / 1024 + 1024))
    [ "${free:-0}" -gt "$needed" ] ||
        fail "$above has ${free:-0} KiB left, and the data needs $needed; the old data is kept next to it${others:+, and so is what interrupted restores have left: $others}"
    rm -rf "$new"
    mkdir -m 0700 "$new" "$new/member" "$new/member/snap" "$new/member/wal" || fail "cannot create $new"
    result folder "$new"
}

seal() {
    sum=$(sum_of_much < "$new/member/snap/db") || fail "cannot read $new/member/snap/db"
    [ "${sum%% *}" = "$arg_sha256" ] || fail "the data was damaged in transit"
    # As long as it is all ours, nobody can put a link among the files.
    chmod 0600 "$new"/member/snap/* "$new"/member/wal/* || fail "cannot set the mode of $new"
    find "$new" -depth -exec chown -h "$arg_user:" {} + || fail "cannot change the owner of $new to $arg_user"
    sync
    changed
}

# Whoever was sent this before may still be at it, if the connection was lost on the way.
wait_for_others() {
    if [ "$CHECK" ] || ! have flock; then return 0; fi
    exec 8> "/run/etcdrun-restore-$arg_token.lock"
    flock 8 || fail "cannot lock /run/etcdrun-restore-$arg_token.lock"
}

switch() {
    if is_over; then return 0; fi
    if [ "$CHECK" ]; then
        changed
        return 0
    fi
    wait_for_others
    if is_over; then return 0; fi
    changed
    [ -d "$new/member" ] || [ -e "$note" ] || fail "there is no $new/member"
    systemctl stop etcd.service || fail "cannot stop etcd"
    systemctl reset-failed etcd.service 2> /dev/null
    if ! { mkdir -p "$data" && chown "$arg_user:" "$data" && chmod 0700 "$data"; }; then fail "cannot create $data"; fi
    # As long as the new data waits, what is in its place is not the new. That may be the old, or, if the power went between the two
    # steps and the machine has booted since, something that etcd has begun by itself. Neither is lost.
    if [ -e "$data/member" ] && [ -d "$new/member" ]; then
        name_aside "${inside}before"
        mkdir -m 0700 "$aside" || fail "cannot create $aside"
        mv "$data/member" "$aside/member" || fail "cannot move $data/member aside"
        result aside "$aside"
    fi
    : > "$note" || fail "cannot write $note"
    if [ -d "$new/member" ] && [ ! -e "$data/member" ]; then
        mv "$new/member" "$data/member" || fail "cannot move $new/member"
    fi
    rmdir "$new" || fail "cannot remove $new"
    sync
}

# A member that starts compares its data with the others, and waits 7 s for each that is not up yet.
start_at_once() {
    [ "$arg_first_start" ] && [ -r "$arg_environment" ] || return 0
    check=$(sed -n 's/InitialCorruptCheck=true/InitialCorruptCheck=false/p
        s/^\(ETCD_EXPERIMENTAL_INITIAL_CORRUPT_CHECK\)=.*/\1=false/p' "$arg_environment") || return 1
    [ "$check" ] || return 0
    mkdir -p "${arg_first_start%/*}" && printf '%s\n' "$check" > "$arg_first_start"
}

start() {
    active=$(systemctl is-active etcd.service)
    mutate rm -f "$note"
    case $active in
    active | activating) return 0 ;;
    esac
    changed
    mutate start_at_once || fail "cannot write $arg_first_start"
    mutate systemctl start --no-block etcd.service || fail "cannot start etcd"
}

# Without the page that makes higher revisions count, the database has those of the backup.
unbump() {
    dd if=/dev/zero of="$new/member/snap/db" bs=16 count=5 seek=$((arg_at / 16)) conv=notrunc 2> /dev/null ||
        fail "cannot write $new/member/snap/db"
}

# Nothing of drills stays, also of those that broke off.
forget() {
    for drill in "$inside"restore-*-drill-*; do
        if [ -d "$drill" ]; then rm -rf "$drill" || fail "cannot remove $drill"; fi
    done
}

find_places
case $arg_action in
room) make_room ;;
seal) seal ;;
switch) switch ;;
start) start ;;
forget) forget ;;
unbump) unbump ;;
esac
