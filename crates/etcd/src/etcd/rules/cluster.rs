//! Rules about what the members say of their cluster.

use std::collections::BTreeSet;

use super::{
    super::observe::{Alarm, AlarmKind, Listed, Observation, Seen, View},
    Answer, Decided, Gate, MemberChange, Situation,
};

/// The members that must be well. The one in turn need not be before its turn: else what is broken could not be mended.
fn concerned<'a>(situation: &'a Situation<'_>, gate: Gate) -> impl Iterator<Item = &'a Seen> {
    let spared = move |seen: &Seen| is_spared(situation, gate, &seen.name) && !seen.is_well();
    situation.now.members.iter().filter(move |seen| !spared(seen))
}

fn is_spared(situation: &Situation<'_>, gate: Gate, name: &str) -> bool {
    matches!(gate, Gate::Before | Gate::Stop) && situation.is_target(name)
}

fn views<'a>(situation: &'a Situation<'_>, gate: Gate) -> impl Iterator<Item = (&'a str, &'a View)> {
    concerned(situation, gate).filter_map(|seen| Some((seen.name.as_str(), seen.answer.as_ref().ok()?)))
}

pub(super) fn answers(situation: &Situation<'_>, gate: Gate) -> Answer {
    let silent = concerned(situation, gate).find_map(|seen| Some((&seen.name, seen.answer.as_ref().err()?)));
    let is_silent = |seen: &&Seen| seen.answer.is_err();
    match silent {
        None => Answer::holds(format!("{} members answer", concerned(situation, gate).count())),
        // To restart one of them is refused because of the other.
        Some((name, error)) if situation.now.members.iter().filter(is_silent).count() > 1 => Answer::refused(
            format!("{name} does not answer ({error}), and is not the only one"),
            format!(
                "see why: `etcdrun logs {name}`; to start all that are stopped, run `etcdrun playbook site.yaml -l CLUSTER`; if the data of {name} is lost, run `etcdrun member replace {name}`"
            ),
        ),
        Some((name, error)) => Answer::refused(
            format!("{name} does not answer ({error})"),
            format!(
                "see why: `etcdrun logs {name}`; then `etcdrun member restart {name}`, or if its data is lost `etcdrun member replace {name}`"
            ),
        ),
    }
}

pub(super) fn one_leader(situation: &Situation<'_>, gate: Gate) -> Answer {
    let now = situation.now;
    let mut leaders: Vec<u64> = views(situation, gate).filter_map(|(_, view)| view.leader).collect();
    leaders.sort_unstable();
    leaders.dedup();
    let lost = views(situation, gate).find(|(_, view)| view.leader.is_none());
    if concerned(situation, gate).next().is_none() {
        return Answer::holds("there are no other members");
    }
    let wait = "wait for the election to end; if it does not, check the network between the members (peer port), then `etcdrun status CLUSTER`";
    match (leaders.as_slice(), lost) {
        ([leader], None) => Answer::holds(format!("{} is the leader", now.name(*leader))),
        (_, Some((name, _))) => Answer::refused(format!("{name} has no leader"), wait),
        ([], None) => Answer::refused("no member reports a leader", wait),
        (several, None) => {
            let names: Vec<String> = several.iter().map(|id| now.name(*id)).collect();
            Answer::refused(format!("members follow different leaders: {}", names.join(", ")), wait)
        }
    }
}

pub(super) fn members_agree(situation: &Situation<'_>, gate: Gate) -> Answer {
    let way_out = "wait until all have caught up; if they still differ, `etcdrun status CLUSTER` names the member, and `etcdrun member replace NAME` rebuilds it";
    let mut views = views(situation, gate);
    let Some((first, view)) = views.next() else {
        return match concerned(situation, gate).next() {
            None => Answer::holds("there are no other members"),
            Some(_) => Answer::refused("no member answers", way_out),
        };
    };
    let clusters = situation.now.views().find(|(_, other)| other.cluster_id != view.cluster_id);
    if let Some((other, _)) = clusters {
        return Answer::refused(
            format!("{first} and {other} belong to different clusters"),
            "one of them was formed a second time; rebuild that one: `etcdrun member replace NAME`",
        );
    }
    let list = situation.now.list();
    for (name, view) in situation.now.views() {
        match &view.list {
            Ok(own) if own == list => {}
            Ok(own) => {
                let (own, others) = (told(own), told(list));
                return Answer::refused(format!("{name} lists the members {own}, others list {others}"), way_out);
            }
            // A learner does not tell.
            Err(_) if view.is_learner || situation.is_target(name) => {}
            Err(error) => return Answer::refused(format!("{name} does not list the members ({error})"), way_out),
        }
    }
    Answer::holds(format!("all list the same {} members", list.len()))
}

/// etcd keeps two lists, and after some starts they differ: docs/etcd.md has the known problem.
pub(super) fn raft_agrees(situation: &Situation<'_>, _: Gate) -> Answer {
    let now = situation.now;
    let Some((name, counted)) = now.leader().and_then(|(name, view)| Some((name, view.counted.as_ref()?))) else {
        return Answer::holds("the leader does not tell whom its Raft counts");
    };
    // That no member lists the members is another rule's business.
    if now.list().is_empty() {
        return Answer::holds("no member lists the members");
    }
    let listed: BTreeSet<String> = now.list().iter().map(|member| format!("{:x}", member.id)).collect();
    if *counted == listed {
        return Answer::holds(format!("the Raft of {name} counts the {} members", counted.len()));
    }
    let names = |ids: &mut dyn Iterator<Item = &String>| {
        ids.map(|id| u64::from_str_radix(id, 16).map_or(id.clone(), |id| now.name(id))).collect::<Vec<_>>().join(", ")
    };
    let differences = [
        ("counts, although it is no member,", names(&mut counted.difference(&listed))),
        ("does not count", names(&mut listed.difference(counted))),
    ];
    let told = differences.iter().filter(|(_, names)| !names.is_empty()).map(|(what, names)| format!("{what} {names}"));
    Answer::refused(
        format!("the Raft of {name} {}", told.collect::<Vec<_>>().join(", and ")),
        format!(
            "transfer leadership to a member that counts right: `etcdrun etcdctl CLUSTER -- move-leader ID`; then rebuild {name}: `etcdrun member replace {name}`; without another host for it, `etcdrun member remove {name}` and `etcdrun member add {name}`"
        ),
    )
}

fn told(list: &[Listed]) -> String {
    let one = |member: &Listed| {
        let name = if member.name.is_empty() { format!("{:x} (not started)", member.id) } else { member.name.clone() };
        if member.is_learner { format!("{name} (learner)") } else { name }
    };
    let mut names: Vec<String> = list.iter().map(one).collect();
    names.sort();
    names.join(", ")
}

pub(super) fn members_known(situation: &Situation<'_>, _: Gate) -> Answer {
    let listed = situation.now.list();
    // That nobody answers is another rule's business.
    if listed.is_empty() {
        return Answer::holds("no member lists the members");
    }
    let unknown = listed.iter().find(|member| !member.name.is_empty() && !situation.members.contains(&member.name));
    if let Some(member) = unknown {
        let name = &member.name;
        return Answer::refused(
            format!("{name} is a member, but not in the inventory"),
            format!(
                "describe {name} in the inventory, or remove it: `etcdrun etcdctl CLUSTER -- member remove {:x}`",
                member.id
            ),
        );
    }
    let missing = situation.members.iter().find(|name| !listed.iter().any(|member| member.name == **name));
    match missing {
        None => Answer::holds("the members are those of the inventory"),
        // Until it has started, nobody knows its name.
        Some(_) if listed.len() == situation.members.len() && listed.iter().any(|member| member.name.is_empty()) => {
            Answer::holds("as many members as the inventory has")
        }
        Some(name) => Answer::refused(
            format!("{name} is in the inventory, but not a member of the cluster"),
            format!("add it: `etcdrun member add {name}`; or remove it from the inventory"),
        ),
    }
}

pub(super) fn members_started(situation: &Situation<'_>, _: Gate) -> Answer {
    match situation.now.list().iter().find(|member| member.name.is_empty()) {
        None => Answer::holds("every member has started"),
        Some(member) => Answer::refused(
            format!("the member {:x} at {} was added and never started", member.id, member.peer_urls.join(", ")),
            format!(
                "continue with `etcdrun resume`, or remove it: `etcdrun etcdctl CLUSTER -- member remove {:x}`",
                member.id
            ),
        ),
    }
}

pub(super) fn members_unchanged(situation: &Situation<'_>, gate: Gate) -> Answer {
    let Some(before) = situation.before else { return situation.unknown("which members there were before") };
    let (then, now) = (before.list(), situation.now.list());
    // An outage was allowed, and no member could list them.
    if then.is_empty() {
        return members_known(situation, gate);
    }
    // The address of the member in turn may be what its turn has changed.
    let known = |member: &Listed| {
        let urls = (!situation.is_target(&member.name)).then(|| member.peer_urls.clone());
        (member.id, member.name.clone(), member.is_learner, urls)
    };
    match then.iter().map(known).eq(now.iter().map(known)) {
        true => Answer::holds("the members are the same as before"),
        false => Answer::refused(
            format!("the members were {}, and now they are {}", told(then), told(now)),
            "something else changes this cluster: find out what, before you run `etcdrun resume`; `etcdrun status CLUSTER` lists the members",
        ),
    }
}

pub(super) fn no_learner(situation: &Situation<'_>, _: Gate) -> Answer {
    // The learner that is to be promoted, or to go, is no obstacle to that.
    let meant = |name: &str| situation.change.is_some() && situation.is_target(name);
    let mut learners = situation.now.list().iter().filter(|member| member.is_learner);
    let listed = learners.find(|member| !meant(&situation.now.name(member.id))).map(|member| member.id);
    let own = situation.now.views().find(|(name, view)| view.is_learner && !meant(name)).map(|(_, view)| view.id);
    match listed.or(own) {
        None => Answer::holds("no member is a learner"),
        Some(id) => Answer::refused(
            format!("{} is still a learner", situation.now.name(id)),
            format!(
                "continue with `etcdrun resume`; else promote it (`etcdrun etcdctl CLUSTER -- member promote {id:x}`), or remove it (`etcdrun etcdctl CLUSTER -- member remove {id:x}`)"
            ),
        ),
    }
}

fn alarms(observation: &Observation) -> Vec<&Alarm> {
    let mut alarms: Vec<&Alarm> = observation.views().flat_map(|(_, view)| &view.alarms).collect();
    alarms.sort();
    alarms.dedup();
    alarms
}

fn raised(situation: &Situation<'_>, alarm: &Alarm) -> Answer {
    let name = situation.now.name(alarm.member);
    match &alarm.kind {
        AlarmKind::Nospace => Answer::refused(
            format!("{name} has the alarm NOSPACE: its quota is used up, and writes are rejected"),
            "run `etcdrun playbook nospace.yaml -l CLUSTER`: it compacts, defragments each member and disarms the alarm; it also applies a larger `etcd.quota` of the inventory",
        ),
        AlarmKind::Corrupt if situation.now.list().iter().all(|listed| listed.id != alarm.member) => Answer::refused(
            format!("the alarm CORRUPT is active for {name}, which is no longer a member; writes are rejected"),
            "disarm it: `etcdrun etcdctl CLUSTER -- alarm disarm`",
        ),
        AlarmKind::Corrupt => Answer::refused(
            format!("{name} has the alarm CORRUPT: its data differs from the others"),
            format!("rebuild it: `etcdrun member replace {name}`, which disarms the alarm afterwards"),
        ),
        AlarmKind::Other(kind) => Answer::refused(
            format!("{name} has the alarm {kind}"),
            "find out what it means and fix it, then `etcdrun etcdctl CLUSTER -- alarm disarm`",
        ),
    }
}

pub(super) fn no_alarm(situation: &Situation<'_>, _: Gate) -> Answer {
    match alarms(situation.now).first() {
        None => Answer::holds("no alarm"),
        Some(alarm) => raised(situation, alarm),
    }
}

pub(super) fn no_corrupt(situation: &Situation<'_>, _: Gate) -> Answer {
    // What is wrong with a member that goes is why it goes.
    let goes = situation.change.is_some_and(MemberChange::removes);
    let is_meant = |alarm: &Alarm| goes && situation.is_target(&situation.now.name(alarm.member));
    match alarms(situation.now).iter().find(|alarm| alarm.kind != AlarmKind::Nospace && !is_meant(alarm)) {
        None => Answer::holds("no alarm except NOSPACE"),
        Some(alarm) => raised(situation, alarm),
    }
}

pub(super) fn no_new_alarm(situation: &Situation<'_>, _: Gate) -> Answer {
    let Some(before) = situation.before else { return situation.unknown("which alarms there were before") };
    let then = alarms(before);
    match alarms(situation.now).iter().find(|alarm| !then.contains(alarm)) {
        None => Answer::holds("no new alarm"),
        Some(alarm) => raised(situation, alarm),
    }
}

pub(super) fn linearizable_read(situation: &Situation<'_>, gate: Gate) -> Answer {
    // A learner answers no reads, and that one answers at all is a rule of its own.
    let mut voting = views(situation, gate).filter(|(_, view)| !view.is_learner);
    let failed = voting.find_map(|(name, view)| Some((name, view.read.as_ref().err()?)));
    match failed {
        None => Answer::holds("every member answers reads"),
        Some((name, error)) => Answer::refused(
            format!("{name} does not answer a linearizable read ({error})"),
            format!("it has no quorum, or is too slow: see `etcdrun logs {name}`"),
        ),
    }
}

/// The voters, and those among them that are well, by name.
fn voters(situation: &Situation<'_>) -> (usize, Vec<String>) {
    let now = situation.now;
    let is_behind = |view: &View| situation.mark.is_some_and(|mark| !view.has_reached(mark));
    let well = now.members.iter().filter(|seen| seen.is_well()).filter_map(|seen| {
        let view = seen.answer.as_ref().ok()?;
        let votes = now.voters().any(|voter| voter.id == view.id);
        (votes && !view.is_learner && !is_behind(view)).then(|| seen.name.clone())
    });
    let well = well.collect();
    // If nobody tells, the inventory must do.
    let count = now.voters().count();
    (if count == 0 { situation.members.len() } else { count }, well)
}

fn majority(voters: usize) -> usize {
    voters / 2 + 1
}

pub(super) fn quorum_now(situation: &Situation<'_>, _: Gate) -> Answer {
    let (voters, well) = voters(situation);
    let (have, majority) = (well.len(), majority(voters));
    match have >= majority {
        true => Answer::holds(format!("{have} of {voters} voters are healthy")),
        false => Answer::refused(
            format!(
                "only {have} of {voters} voters are healthy, and quorum needs {majority}: the cluster has lost quorum"
            ),
            "`etcdrun recover CLUSTER --check` shows what data survives; `etcdrun recover CLUSTER` starts the members that can start, or creates a new cluster from the surviving data",
        ),
    }
}

/// A member that comes, or gets a vote, takes nobody down; nor does one that is no voter any more.
fn nobody_goes(situation: &Situation<'_>) -> bool {
    situation.decided == Some(Decided::Gone)
        || matches!(situation.change, Some(MemberChange::AddLearner | MemberChange::AddVoter | MemberChange::Promote))
}

pub(super) fn quorum_after(situation: &Situation<'_>, _: Gate) -> Answer {
    if nobody_goes(situation) {
        return Answer::holds("no member stops");
    }
    let Some(target) = situation.going() else { return situation.unknown("which member is being changed") };
    let (voters, well) = voters(situation);
    let others = well.iter().filter(|name| !situation.is_target(name)).count();
    // One that is removed does not count any more.
    let majority = match situation.change {
        Some(change) if change.removes() => majority(voters.saturating_sub(1)),
        _ => majority(voters),
    };
    // A small cluster cannot spare any: that is the next rule's business. One that is on a single machine goes with it, if
    // it may.
    let goes_as_a_whole = situation.consent.outage && !situation.along.is_empty();
    if situation.is_stopped_already() {
        return Answer::holds(format!("{target} is already stopped"));
    }
    if others >= majority || (voters <= 2 && others + 1 >= voters) || goes_as_a_whole {
        return Answer::holds(format!("{others} of {voters} voters are healthy without {target}"));
    }
    let sick = situation.now.members.iter().find(|seen| !situation.is_target(&seen.name) && !well.contains(&seen.name));
    let sick = sick.map(|seen| match seen.trouble() {
        Some(trouble) => format!(" ({trouble})"),
        None => format!(" ({} has not caught up)", seen.name),
    });
    Answer::refused(
        format!(
            "stopping {target} would leave {others} of {voters} voters healthy, and quorum needs {majority}{}",
            sick.unwrap_or_default()
        ),
        "repair the unhealthy members first: `etcdrun status CLUSTER` names them, and what to run",
    )
}

pub(super) fn small_cluster(situation: &Situation<'_>, _: Gate) -> Answer {
    if nobody_goes(situation) {
        return Answer::holds("no member stops");
    }
    let (voters, _) = voters(situation);
    match (voters, situation.consent.outage) {
        (0..=2, false) => Answer::refused(
            format!("a cluster of {voters} loses quorum while a member is down"),
            format!(
                "to accept that, {}; or add members first (`etcdrun member add NAME`)",
                situation.with_outage_allowed()
            ),
        ),
        (0..=2, true) => Answer::holds(format!("the cluster of {voters} may lose quorum")),
        _ => Answer::holds(format!("{voters} voters")),
    }
}

pub(super) fn caught_up(situation: &Situation<'_>, gate: Gate) -> Answer {
    let Some(mark) = situation.mark else { return situation.unknown("which index the leader had") };
    let mut others = views(situation, gate).filter(|(name, _)| !is_spared(situation, gate, name));
    match others.find(|(_, view)| !view.has_reached(mark)) {
        None => Answer::holds(format!("all have applied {mark}")),
        Some((name, view)) => Answer::refused(
            format!("{name} lags behind the leader: it has applied {} of {mark}", view.applied_index),
            format!(
                "wait until {name} has caught up, then `etcdrun resume`; if it falls back further, check its disk and its network (`etcdrun logs {name}`)"
            ),
        ),
    }
}

pub(super) fn leader_off(situation: &Situation<'_>, _: Gate) -> Answer {
    if situation.target.is_none() {
        return situation.unknown("which member is being changed");
    }
    // Alone it has nobody to hand over to.
    let others = situation.now.members.iter().filter(|seen| !situation.is_target(&seen.name) && seen.is_well()).count();
    match situation.now.leader() {
        Some((leader, _)) if situation.is_target(leader) && others > 0 => Answer::refused(
            format!("{leader} is the leader: stopping it now would force an election"),
            "transfer leadership first (`etcd_move_leader`); `etcdrun member restart NAME` does both",
        ),
        Some((leader, _)) => Answer::holds(format!("{leader} is the leader")),
        None if situation.now.voters().count() <= 1 => Answer::holds("there is no other member"),
        None => Answer::refused("there is no leader", "wait for the election to end, then `etcdrun resume`"),
    }
}
