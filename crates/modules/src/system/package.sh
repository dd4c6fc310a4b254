# shellcheck shell=sh disable=SC2154
# "$@" are the packages, each as NAME or NAME=VERSION.

# What the tools print is parsed, and nobody is there to answer questions. needrestart would restart
# services on its own, which a cluster's rollout must be asked about first.
LC_ALL=C DEBIAN_FRONTEND=noninteractive APT_LISTCHANGES_FRONTEND=none NEEDRESTART_MODE=l
export LC_ALL DEBIAN_FRONTEND APT_LISTCHANGES_FRONTEND NEEDRESTART_MODE

nl='
'

choose_manager() {
    case $arg_manager in
    auto)
        for manager in apt dnf yum; do
            tool=$manager
            [ "$manager" = apt ] && tool=apt-get
            if have "$tool"; then break; fi
            manager=''
        done
        [ "$manager" ] || fail "the target has none of apt, dnf and yum"
        ;;
    apt) manager=apt; have apt-get || fail "apt-get is missing on the target" ;;
    *)
        manager=$arg_manager
        have "$manager" || fail "$manager is missing on the target"
        ;;
    esac
    case $manager in apt) ;; *) tool=$manager manager=dnf ;; esac
}

# plan VERB NAME BEFORE AFTER: remembers one package that changes.
changes='' before='' after=''
plan() {
    changes="$changes${changes:+,}\"$1 $2${4:+ $4}\""
    before="$before$2${3:+ $3}$nl"
    after="$after$2${4:+ $4}$nl"
}

report_plan() {
    result_json changes "[$changes]"
    [ "$changes" ] || return 0
    changed
    printf '%s' "$before" | show_before packages
    printf '%s' "$after" | show_after packages
}

# --- apt ---

# An old configuration file is kept, and a dpkg that somebody else runs is waited for.
run_apt() {
    # It keeps what it works out in files, which a plan must not write.
    if [ "$CHECK" ]; then set -- -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache= "$@"; fi
    apt-get -q -y -o "DPkg::Lock::Timeout=$arg_lock_timeout" \
        -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold "$@"
}

# The lists have a lock of their own, which apt does not wait for.
apt_update() {
    waited=0
    while :; do
        output=$(run_apt update 2>&1) && return
        case $output in
        *'Could not get lock'* | *'Unable to lock directory'*) ;;
        *) break ;;
        esac
        [ "$waited" -lt "$arg_lock_timeout" ] || break
        sleep 1
        waited=$((waited + 1))
    done
    printf '%s\n' "$output" >&2
    return 1
}

apt_is_fresh() {
    [ "$arg_cache_valid_time" -gt 0 ] || return
    stamp=/var/lib/apt/periodic/update-success-stamp
    [ -e "$stamp" ] || stamp=/var/lib/apt/lists
    modified=$(stat -c %Y "$stamp") && now=$(date +%s) || return
    [ $((now - modified)) -lt "$arg_cache_valid_time" ]
}

# Without packages the update is the task; with them it only prepares.
apt_refresh() {
    updated=''
    if [ "$arg_update_cache" ] && ! apt_is_fresh; then
        updated=1
        mutate apt_update || fail "cannot update the package lists"
        [ "$#$arg_upgrade" != 0 ] || changed
    fi
    result_bool cache_updated "$updated"
}

# Sets $known to lines "NAME STATUS VERSION" of those of the packages that dpkg knows.
apt_query() {
    for word in "$@"; do
        shift
        set -- "$@" "${word%%=*}"
    done
    # It complains of those it does not know, which is what we want to find out.
    # shellcheck disable=SC2016 # These are dpkg's variables.
    known=$(dpkg-query -W -f '${Package} ${db:Status-Status} ${Version}\n' "$@" 2>/dev/null) || :
}

# apt_find WORD: sets $status and $version of a package, empty if dpkg does not know it.
apt_find() {
    name=${1%%=*} name=${name%%:*}
    while read -r package status version; do
        [ "$package" = "$name" ] && return
    done <<KNOWN
$known
KNOWN
    status='' version=''
}

# Whether an installed package stands for this name, as mawk does for awk.
apt_is_provided() {
    # shellcheck disable=SC2016 # These are dpkg's variables.
    [ "$provided" ] || provided=$(dpkg-query -W -f '${db:Status-Status} , ${Provides}, \n')
    while read -r status names; do
        [ "$status" = installed ] || continue
        case $names in *", $1,"* | *", $1 ("*) return 0 ;; esac
    done <<PROVIDED
$provided
PROVIDED
    return 1
}
provided=''

# Whether the package is as `present` wants it; a version may be a pattern, as for apt itself.
apt_is_present() {
    apt_find "$1"
    case $status$1 in
    installed*=*) ;;
    installed*) return 0 ;;
    *=*) return 1 ;;
    *) apt_is_provided "$1"; return ;;
    esac
    # shellcheck disable=SC2254 # A pattern.
    case $version in ${1#*=}) return 0 ;; esac
    return 1
}

apt_is_absent() {
    apt_find "$1"
    case $status in
    installed | half-* | triggers-* | unpacked) return 1 ;;
    config-files) [ -z "$arg_purge" ] ;;
    esac
}

# Sets $todo, from "$@", to the packages that need a closer look.
apt_choose() {
    apt_query "$@"
    todo=''
    for word in "$@"; do
        case $arg_state in
        present) apt_is_present "$word" && continue ;;
        absent) apt_is_absent "$word" && continue; word=${word%%=*} ;;
        esac
        todo="$todo $word"
    done
}

# Asks apt itself what it would do, since only it knows of dependencies and virtual packages.
apt_simulate() {
    if simulation=$(run_apt -s "$@" 2>&1); then
        apt_read_simulation
        return
    fi
    if [ "$CHECK" ] && [ "$updated" ]; then
        unknown "the package lists would be updated first"
        exit 0
    fi
    case $simulation in *'Unable to locate package'*) hint='; are the package lists up to date (update_cache)?' ;; *) hint='' ;; esac
    printf '%s\n' "$simulation" >&2
    fail "apt cannot do this$hint"
}

# Inst NAME [OLD] (NEW ...), or without [OLD] if it is new; Remv or Purg NAME [OLD].
apt_read_simulation() {
    removed=' '
    while read -r action name first second _; do
        bare_first=${first#[\[(]} bare_first=${bare_first%\]}
        case $action$first in
        Inst\[*) plan upgrade "$name" "$bare_first" "${second#\(}" ;;
        Inst*) plan install "$name" '' "$bare_first" ;;
        Remv* | Purg*)
            # One purge shows as both.
            case $removed in *" $name "*) continue ;; esac
            removed="$removed$name "
            plan remove "$name" "$bare_first" ''
            ;;
        esac
    done <<SIMULATION
$simulation
SIMULATION
}

apt_upgrade() {
    set -- --with-new-pkgs upgrade
    [ "$arg_autoremove" ] && set -- --auto-remove "$@"
    apt_simulate "$@"
    report_plan
    [ "$changes" ] || return 0
    mutate run_apt "$@" || fail "apt-get upgrade failed"
}

apt_main() {
    apt_refresh "$@"
    if [ "$arg_upgrade" ]; then apt_upgrade; fi
    [ $# -gt 0 ] || return 0
    apt_choose "$@"
    if [ -z "$todo" ]; then
        report_plan
        return
    fi
    case $arg_state in
    absent) verb=remove ;;
    *) verb=install ;;
    esac
    if [ "$verb$arg_purge" = remove1 ]; then verb=purge; fi
    # shellcheck disable=SC2086 # Names without blanks.
    set -- "$verb" $todo
    case $arg_install_recommends in
    true) set -- --install-recommends "$@" ;;
    false) set -- --no-install-recommends "$@" ;;
    esac
    [ "$arg_allow_downgrade" ] && set -- --allow-downgrades "$@"
    [ "$arg_autoremove" ] && set -- --auto-remove "$@"
    apt_simulate "$@"
    report_plan
    [ "$changes" ] || return 0
    mutate run_apt "$@" || fail "apt-get $verb failed"
}

# --- dnf ---

run_dnf() {
    # A plan asks what is on the host already: new lists would be written there.
    if [ "$CHECK" ]; then set -- --cacheonly "$@"; fi
    "$tool" -q -y "$@"
}

dnf_refresh() {
    [ "$arg_update_cache" ] || { result_bool cache_updated ''; return; }
    set --
    [ "$arg_cache_valid_time" -gt 0 ] && set -- "--setopt=metadata_expire=$arg_cache_valid_time"
    mutate run_dnf "$@" makecache || fail "cannot update the package lists"
    result_bool cache_updated 1
}

# dnf and rpm write NAME-VERSION. What is not a package's name may be something it provides.
dnf_version() {
    version=$(rpm -q --qf '%{VERSION}-%{RELEASE}\n' "$1" 2>/dev/null) ||
        version=$(rpm -q --whatprovides --qf '%{VERSION}-%{RELEASE}\n' "$1" 2>/dev/null) || version=''
}

# Whether there is a newer one: 100 says yes.
dnf_has_update() {
    run_dnf check-update "$1" >/dev/null
    case $? in
    0) return 1 ;;
    100) return 0 ;;
    *)
        [ "$CHECK" ] || fail "cannot query $tool for updates of $1"
        unknown "the package lists would be updated first"
        exit 0
        ;;
    esac
}

dnf_choose() {
    todo='' upgrades=''
    for word in "$@"; do
        case $word in *=*) word=${word%%=*}-${word#*=} ;; esac
        dnf_version "$word"
        case $arg_state$version in
        present | latest) plan install "$word" '' installed; todo="$todo $word" ;;
        absent?*) plan remove "$word" "$version" ''; todo="$todo $word" ;;
        latest*)
            dnf_has_update "$word" || continue
            plan upgrade "$word" "$version" latest
            upgrades="$upgrades $word"
            ;;
        esac
    done
}

# dnf_run VERB PACKAGES
dnf_run() {
    [ "$2" ] || return 0
    # shellcheck disable=SC2086 # Names without blanks.
    set -- "$1" $2
    case $arg_install_recommends in
    true) set -- --setopt=install_weak_deps=1 "$@" ;;
    false) set -- --setopt=install_weak_deps=0 "$@" ;;
    esac
    if [ "$arg_state$arg_autoremove" = absent ]; then set -- --setopt=clean_requirements_on_remove=0 "$@"; fi
    mutate run_dnf "$@" || fail "$tool failed"
}

# Lines NAME.ARCH VERSION REPOSITORY; 100 says that there are some.
dnf_upgrade() {
    updates=$(run_dnf check-update)
    case $? in
    0 | 100) ;;
    *) fail "cannot query $tool for updates" ;;
    esac
    while read -r name version _; do
        case $name in
        Obsoleting) break ;;
        *.*) plan upgrade "${name%.*}" '' "$version" ;;
        esac
    done <<UPDATES
$updates
UPDATES
    report_plan
    [ "$changes" ] || return 0
    mutate run_dnf upgrade || fail "$tool failed"
}

dnf_main() {
    dnf_refresh
    if [ "$arg_upgrade" ]; then dnf_upgrade; fi
    [ $# -gt 0 ] || return 0
    dnf_choose "$@"
    report_plan
    case $arg_state in
    absent) dnf_run remove "$todo" ;;
    *) dnf_run install "$todo" ;;
    esac
    dnf_run upgrade "$upgrades"
}

choose_manager
result manager "$manager"
"${manager}_main" "$@"
