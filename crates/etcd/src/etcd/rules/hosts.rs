//! Rules about what is seen on the hosts.

use super::{Answer, Decided, Gate, HostSeen, MemberChange, Situation};

/// How far clocks may be apart, in milliseconds.
const CLOCKS: i64 = 1000;

pub(super) fn reachable(situation: &Situation<'_>, _: Gate) -> Answer {
    if situation.hosts.is_empty() {
        return situation.unknown("whether SSH reaches the hosts");
    }
    // A turn that was interrupted may have switched the machine of its member off, and is about to switch it on again. A new
    // version is only for a host that can be reached.
    let is_spared = |host: &HostSeen| situation.step.is_none() && situation.is_target(&host.name) && host.is_off();
    let hosts = situation.hosts.iter().filter(|host| !is_spared(host));
    let cut = hosts.clone().find_map(|host| Some((&host.name, host.unreachable.as_ref()?)));
    match cut {
        None => Answer::holds(format!("SSH reaches {} hosts", hosts.count())),
        Some((name, why)) => Answer::refused(
            format!("cannot reach {name} over SSH ({why})"),
            format!(
                "restore SSH access first (`etcdrun ssh {name}`); its etcd may still be serving, so nothing was changed. If the host is lost: `etcdrun member replace {name}`"
            ),
        ),
    }
}

pub(super) fn unreachable_is_not_dead(situation: &Situation<'_>, gate: Gate) -> Answer {
    // One that has failed is stopped and removed, also if it was no voter when this was decided.
    let stops = gate == Gate::Stop && matches!(situation.decided, Some(Decided::Dead | Decided::Corrupt));
    let is_over = situation.decided == Some(Decided::Gone);
    if is_over || (!stops && matches!(situation.change, Some(MemberChange::AddLearner))) {
        return Answer::holds("no member is removed");
    }
    let Some(target) = situation.target else { return situation.unknown("which member is being changed") };
    // To power off what nobody can look into is safe; to power off what serves is not.
    let not_seen = |what: String| match situation.consent.fenced {
        true => Answer::holds("its guest is powered off first"),
        false => situation.unknown(what),
    };
    let Some(host) = situation.hosts.iter().find(|host| host.name == target) else {
        return not_seen(format!("whether SSH reaches {target}"));
    };
    let way_out = format!(
        "restore SSH access (`etcdrun ssh {target}`), or stop its etcd by other means (a guest: `etcdrun ssh HYPERVISOR -- virsh destroy {target}`) before it is replaced"
    );
    match (&host.unreachable, host.answers_others) {
        (None, _) => Answer::holds(format!("SSH reaches {target}")),
        (Some(_), Some(false)) => Answer::holds(format!("{target} does not answer")),
        (Some(why), Some(true)) => Answer::refused(
            format!("cannot reach {target} over SSH ({why}), but its etcd serves: it has not failed"),
            way_out,
        ),
        (Some(why), None) => not_seen(format!("whether {target} serves, which SSH does not reach ({why})")),
    }
}

pub(super) fn clock(situation: &Situation<'_>, _: Gate) -> Answer {
    let clocks = || situation.hosts.iter().filter_map(|host| Some((&host.name, host.clock?)));
    let (first, last) = (clocks().min_by_key(|(_, clock)| clock.0), clocks().max_by_key(|(_, clock)| clock.0));
    let (Some((behind, (least, one))), Some((ahead, (most, other)))) = (first, last) else {
        return situation.unknown("the time on the hosts");
    };
    let apart = (most - least).saturating_sub_unsigned(one + other);
    match apart > CLOCKS {
        false => Answer::holds("clocks agree"),
        true => Answer::refused(
            format!("the clock of {ahead} is {:.1} s ahead of that of {behind}", seconds(most - least)),
            "set the clocks (chrony, systemd-timesyncd), then `etcdrun resume`: leases, certificates and logs depend on them",
        ),
    }
}

fn seconds(milliseconds: i64) -> f64 {
    milliseconds as f64 / 1000.0
}

pub(super) fn disk_room(situation: &Situation<'_>, _: Gate) -> Answer {
    let mut rooms = situation.hosts.iter().flat_map(|host| host.rooms.iter().map(move |room| (&host.name, room)));
    if rooms.clone().next().is_none() {
        return situation.unknown("how much free space the disks have");
    }
    match rooms.find(|(_, room)| room.free < room.needed) {
        None => Answer::holds("disks have enough free space"),
        Some((name, room)) => {
            let (free, needed) = (mebibytes(room.free), mebibytes(room.needed));
            Answer::refused(
                format!("{name} has {free} free at {}, but {} needs {needed}", room.path, room.what),
                "free space there, then `etcdrun resume`",
            )
        }
    }
}

pub(super) fn mebibytes(bytes: u64) -> String {
    format!("{} MiB", bytes.div_ceil(1 << 20))
}

pub(super) fn binary_verified(situation: &Situation<'_>, _: Gate) -> Answer {
    let Some(target) = situation.target else { return situation.unknown("which member is being changed") };
    let host = situation.hosts.iter().find(|host| host.name == target);
    let Some(release) = host.and_then(|host| host.release.as_ref()) else {
        return situation.unknown(format!("whether the new etcd binary is on {target}"));
    };
    let path = &release.path;
    match &release.sha256 {
        None => Answer::refused(
            format!("{path} is not on {target}"),
            "run the playbook again: it installs the release on every member first",
        ),
        Some(found) if !found.eq_ignore_ascii_case(&release.wanted) => Answer::refused(
            format!("{path} on {target} has the sha256 {found}, but `etcd_releases` has {}", release.wanted),
            format!("remove that file (`etcdrun ssh {target} -- sudo rm {path}`), and run the playbook again"),
        ),
        Some(_) => Answer::holds(format!("{path} has the checksum of `etcd_releases`")),
    }
}

pub(super) fn strict_reconfig(situation: &Situation<'_>, _: Gate) -> Answer {
    let off = situation.hosts.iter().find(|host| host.strict_reconfig == Some(false));
    match off {
        Some(host) => Answer::refused(
            format!("etcd on {} runs with `strict-reconfig-check=false`", host.name),
            "remove `strict-reconfig-check` from `etcd.settings` of the inventory, then `etcdrun playbook settings.yaml -l CLUSTER`",
        ),
        None if situation.hosts.iter().any(|host| host.strict_reconfig.is_some()) => {
            Answer::holds("etcd checks membership changes")
        }
        None => situation.unknown("whether etcd checks membership changes"),
    }
}
