//! Rules about the data: that there is a copy of it, and that all members have the same.

use std::time::Duration;

use super::{Answer, Gate, Situation, hosts::mebibytes};

/// How old a snapshot may be. What was written since would be lost with it, so one from before a break does not count.
pub const SNAPSHOT_AGE: Duration = Duration::from_secs(3600);

pub(super) fn snapshot_verified(situation: &Situation<'_>, _: Gate) -> Answer {
    let again = "take it again, through another member";
    match situation.snapshot {
        _ if situation.consent.no_snapshot => Answer::holds("no snapshot is required"),
        None => situation.unknown("whether there is a snapshot"),
        Some(snapshot) if snapshot.size % 512 != 32 || !snapshot.sum_matches => {
            Answer::refused(format!("the snapshot of {} bytes is truncated or damaged", snapshot.size), again)
        }
        Some(snapshot) => match snapshot.age.filter(|age| *age > SNAPSHOT_AGE) {
            None => Answer::holds(format!("a snapshot of {}", mebibytes(snapshot.size))),
            Some(age) => Answer::refused(
                format!("the snapshot is {} minutes old, and {} is the limit", minutes(age), minutes(SNAPSHOT_AGE)),
                "take another one: `etcd_snapshot` with a `max_age` does this",
            ),
        },
    }
}

fn minutes(time: Duration) -> u64 {
    time.as_secs() / 60
}

pub(super) fn data_agrees(situation: &Situation<'_>, _: Gate) -> Answer {
    let Some(found) = situation.data else { return situation.unknown("whether the members have the same data") };
    let mut others = found.members.iter().filter(|(name, _)| !situation.is_target(name));
    let silent = others.find_map(|(name, hash)| Some((name, hash.as_ref().err()?)));
    if let Some((name, why)) = silent {
        return Answer::refused(
            format!("{name} does not report the hash of its data ({why})"),
            format!("see `journalctl -u etcd` on {name}"),
        );
    }
    let groups = found.groups();
    let differs = match found.dissenters() {
        // The one that goes may have anything.
        Some(names) => names.into_iter().filter(|name| !situation.is_target(name)).collect::<Vec<_>>(),
        None if groups.len() < 2 => Vec::new(),
        None => {
            return Answer::refused(
                found.told(),
                "a majority must agree before one can be trusted: take a backup of each (`etcdrun backup CLUSTER --through MEMBER`), and find out which is right",
            );
        }
    };
    match differs.as_slice() {
        [] => Answer::holds(format!("at revision {} all have the same data", found.revision)),
        names => Answer::refused(
            found.told(),
            format!(
                "`etcdrun member replace {}` gives it the data of the others; to keep it on its host, stop its etcd first",
                names.join(" ")
            ),
        ),
    }
}
