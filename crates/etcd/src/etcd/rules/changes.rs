//! Rules about changes of the list of members.

use super::{super::observe::View, Answer, Decided, Gate, MemberChange, Situation};

pub(super) fn learners_only(situation: &Situation<'_>, _: Gate) -> Answer {
    match situation.change {
        Some(MemberChange::AddVoter) => Answer::refused(
            "a voter that has not started counts against the quorum",
            "add it with `etcdrun member add NAME`, which adds a learner and promotes it once it has caught up",
        ),
        _ => Answer::holds("only learners are added"),
    }
}

pub(super) fn dead_goes_first(situation: &Situation<'_>, _: Gate) -> Answer {
    if !matches!(situation.change, Some(MemberChange::AddLearner | MemberChange::AddVoter)) {
        return Answer::holds("nothing is added");
    }
    let now = situation.now;
    let is_well =
        |id: u64| now.members.iter().any(|seen| seen.is_well() && seen.answer.as_ref().is_ok_and(|view| view.id == id));
    match now.voters().find(|voter| !is_well(voter.id)) {
        None => Answer::holds("no failed member is left"),
        Some(dead) => Answer::refused(
            format!("{} has failed and is still a voter: another member would raise the quorum", now.name(dead.id)),
            match dead.name.as_str() {
                name if situation.members.iter().any(|known| known == name) => format!(
                    "repair it first: `etcdrun member restart {name}`, or if its data is lost `etcdrun member replace {name}`"
                ),
                _ => format!("remove it first: `etcdrun etcdctl CLUSTER -- member remove {:x}`", dead.id),
            },
        ),
    }
}

pub(super) fn as_decided(situation: &Situation<'_>, _: Gate) -> Answer {
    let (Some(decided), Some(target)) = (situation.decided, situation.target) else {
        return Answer::holds("nothing was decided of a member");
    };
    let now = situation.now;
    let is_voter = now.voters().any(|voter| voter.name == target);
    let serves = now.members.iter().any(|seen| seen.name == target && seen.is_well());
    let is_corrupt = now.view(target).is_some_and(View::is_corrupt);
    let changed = match decided {
        _ if now.list().is_empty() => return Answer::refused("no member lists the members of the cluster", LOOK_AGAIN),
        Decided::Gone if is_voter => format!("{target} was no voter when this was decided, and is one now"),
        Decided::Dead if is_voter && serves => {
            format!("{target} did not serve when this was decided, and it is a healthy voter now")
        }
        Decided::Corrupt if is_voter && serves && !is_corrupt => {
            format!("{target} had damaged data when this was decided, and it is a healthy voter now")
        }
        _ => return Answer::holds(format!("{target} has not changed")),
    };
    Answer::refused(changed, LOOK_AGAIN)
}

const LOOK_AGAIN: &str = "it was not changed: check `etcdrun status CLUSTER`; if something is still to do, run the command again instead of `etcdrun resume`";

pub(super) fn live_goes_last(situation: &Situation<'_>, _: Gate) -> Answer {
    let Some(change) = situation.change.filter(|change| change.removes()) else {
        return Answer::holds("nothing is removed");
    };
    let Some(target) = situation.target else { return situation.unknown("which member is being changed") };
    let alive = situation.now.members.iter().any(|seen| seen.name == target && seen.is_well());
    let voters = situation.now.voters().count();
    let is_voter = situation.now.voters().any(|voter| voter.name == target);
    match (change, situation.voters_then) {
        (MemberChange::Remove, _) if alive => Answer::refused(
            format!("{target} is healthy, and no other member has replaced it yet"),
            "replace it (`etcdrun member replace NAME`), or make the cluster smaller (`etcdrun member remove NAME`)",
        ),
        // What came may have taken the place of another.
        (MemberChange::RemoveReplaced, Some(then)) if is_voter && voters <= then => Answer::refused(
            format!(
                "no member has replaced {target}: the cluster has {voters} voters, and had {then} when this was decided"
            ),
            LOOK_AGAIN,
        ),
        _ => Answer::holds(format!("{target} may be removed")),
    }
}
