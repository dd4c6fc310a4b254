# shellcheck shell=sh disable=SC2154
# Powers a guest off for good. The definition goes last, so that whoever comes back after a crash still finds the disks.

need_libvirt
# What could not be asked is not absent.
names=$(vir list --all --name) || fail "cannot list the domains of this host"
case "
$names
" in
*"
$arg_name
"*) state=$(vir domstate "$arg_name") || fail "cannot inspect the domain $arg_name" ;;
*) state=absent ;;
esac
result was "$state"
if [ "$state" = absent ]; then exit 0; fi
mark=$(vir dumpxml --inactive "$arg_name" | sed -n '/<metadata>/,/<\/metadata>/p')
case $mark in
*"$arg_namespace"*) ;;
*) fail "there is a domain $arg_name on this host that etcdrun did not create; it is not changed" ;;
esac
case $mark in
*"cluster=\"$arg_cluster\""* | *"cluster='$arg_cluster'"*) ;;
*) fail "the domain $arg_name on this host belongs to another cluster; it is not changed" ;;
esac
changed
if [ "$CHECK" ]; then exit 0; fi

vir autostart --disable "$arg_name" > /dev/null || fail "cannot disable autostart of $arg_name"
case $state in
'shut off' | crashed) ;;
*) vir destroy "$arg_name" > /dev/null || fail "cannot power $arg_name off" ;;
esac
state=$(vir domstate "$arg_name") || fail "cannot inspect the domain $arg_name"
case $state in 'shut off' | crashed) ;; *) fail "$arg_name is still $state" ;; esac

all=''
disks=$(vir domblklist "$arg_name" --inactive) || fail "cannot list the disks of $arg_name"
while read -r _ path; do
    if [ ! -f "$path" ]; then continue; fi
    if [ "$arg_purge" ]; then
        rm -f -- "$path" || fail "cannot remove $path"
        continue
    fi
    name_aside "$path.removed"
    # The definition is beside the first of them.
    if [ -z "$all" ]; then
        definition=${path%/*}/$arg_name.${aside#"$path".}.xml
        vir dumpxml --inactive "$arg_name" > "$definition" || fail "cannot save the definition of $arg_name"
    fi
    mv -- "$path" "$aside" || fail "cannot move $path aside"
    all="$all$aside
"
done <<DISKS
$disks
DISKS
vir undefine --nvram "$arg_name" > /dev/null 2>&1 || vir undefine "$arg_name" > /dev/null || fail "cannot undefine $arg_name"
# shellcheck disable=SC2046 # Names of pools are words.
for pool in $(vir pool-list --name); do vir pool-refresh "$pool" > /dev/null 2>&1; done
result aside "$all"
if [ "$arg_purge" ]; then note "powered off; its disks are deleted"; else note "powered off; its disks are moved aside"; fi
