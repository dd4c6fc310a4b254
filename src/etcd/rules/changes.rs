//! Rules about changes of the list of members.

use super::{Answer, Gate, MemberChange, Situation};

pub(super) fn learners_only(situation: &Situation<'_>, _: Gate) -> Answer {
    match situation.change {
        Some(MemberChange::AddVoter) => Answer::refused(
            "a voter that has not started counts against the majority",
            "add it as a learner, and promote it once it has caught up",
        ),
        _ => Answer::holds("nothing but learners is added"),
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
        None => Answer::holds("no dead member is left"),
        Some(dead) => Answer::refused(
            format!("{} is dead and still a voter: another member would make the majority larger", now.name(dead.id)),
            format!("remove it first: `etcdctl member remove {:x}`", dead.id),
        ),
    }
}

pub(super) fn live_goes_last(situation: &Situation<'_>, _: Gate) -> Answer {
    let Some(MemberChange::Remove { replaced }) = situation.change else { return Answer::holds("nothing is removed") };
    let Some(target) = situation.target else { return situation.unknown("which member is in turn") };
    let alive = situation.now.members.iter().any(|seen| seen.name == target && seen.is_well());
    match alive && !replaced && !situation.consent.shrink {
        false => Answer::holds(format!("{target} may go")),
        true => Answer::refused(
            format!("{target} is alive, and nobody has taken its place yet"),
            "add a learner and promote it first; or allow that the cluster shrinks",
        ),
    }
}
