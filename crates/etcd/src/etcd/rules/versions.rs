//! Rules about versions.

use super::{
    super::observe::{Observation, Seen, Series, View},
    Answer, Gate, MemberChange, RULES, Situation, Step, is_off,
};
use crate::model::Version;

const fn version(minor: u16, patch: u16) -> Version {
    Version { major: 3, minor, patch }
}

/// Below this, 3.5 is no step on the way: promotions may be missing in its data, and removed members come back.
pub const FLOOR_3_5: Version = version(5, 26);
/// The first 3.5 from which etcd's own guide goes on to 3.6.
pub const RECOMMENDED_3_5: Version = version(5, 32);
/// Below this, 3.6 must run neither beside 3.5 nor beside 3.7.
pub const FLOOR_3_6: Version = version(6, 11);
/// These lose data.
const FORBIDDEN: [Version; 3] = [version(5, 0), version(5, 1), version(5, 2)];
const AUTH_HOP: (Series, Series) = ((3, 4), (3, 5));

fn crosses(step: Step, from: Series, to: Series) -> bool {
    step.from.series() == from && step.to.series() == to
}

fn goes_up(step: Step) -> bool {
    step.to > step.from
}

/// What a step alone tells, without anybody being asked.
fn with_step(situation: &Situation<'_>, check: fn(Step) -> Answer) -> Answer {
    situation.step.map_or_else(|| Answer::holds("the version does not change"), check)
}

/// Which rule forbids a step, if one does: for looking for a path.
pub(in super::super) fn step_refusal(step: Step) -> Option<(&'static str, String, String)> {
    let rules = RULES.iter().filter(|rule| !is_off(rule.id));
    rules.filter_map(|rule| Some((rule.id, rule.step?(step)))).find_map(|(id, answer)| match answer {
        Answer::Refused { what, way_out } => Some((id, what, way_out)),
        _ => None,
    })
}

pub(super) fn versions_expected(situation: &Situation<'_>, gate: Gate) -> Answer {
    let now = situation.now;
    let wrong = |name: &str, has: Version, wanted: String| {
        Answer::refused(
            format!("{name} runs {has}, but {wanted}"),
            "something else changes versions, or a restart had no effect: check that member (`etcdrun logs NAME`) before you run `etcdrun resume`",
        )
    };
    let target = situation.target.and_then(|target| Some((target, now.view(target)?)));
    let Some(step) = situation.step else {
        let Some((name, view)) = target else { return Answer::holds("the version does not change") };
        return match situation.before.and_then(|before| before.view(name)) {
            Some(before) if before.version != view.version => {
                wrong(name, view.version, format!("it ran {} before", before.version))
            }
            _ => Answer::holds(format!("{name} runs {}", view.version)),
        };
    };
    let (low, high) = (step.from.min(step.to).series(), step.from.max(step.to).series());
    let odd = |view: &View| match gate {
        Gate::Settled => view.version != step.to,
        _ => !(low..=high).contains(&view.version.series()),
    };
    if let Some((name, view)) = now.views().find(|(_, view)| odd(view)) {
        let wanted = match gate {
            Gate::Settled => format!("all should run {}", step.to),
            _ => format!("this change is from {} to {}", step.from, step.to),
        };
        return wrong(name, view.version, wanted);
    }
    match (gate, target) {
        (Gate::After, Some((name, view))) if view.version != step.to => {
            wrong(name, view.version, format!("it should run {} now", step.to))
        }
        _ => Answer::holds(format!("from {} to {}", step.from, step.to)),
    }
}

/// Neither the step nor what runs side by side may span more than one minor version.
pub(super) fn one_minor(situation: &Situation<'_>, _: Gate) -> Answer {
    let running = || situation.now.views().map(|(_, view)| view.version);
    let all = || running().chain(situation.step.map(|step| step.to));
    let (Some(low), Some(high)) = (all().min(), all().max()) else {
        return Answer::holds("the version does not change");
    };
    minors(Step { from: low, to: high })
}

pub(super) fn minors(step: Step) -> Answer {
    let (low, high) = (step.from.min(step.to), step.from.max(step.to));
    match low.major == high.major && high.minor - low.minor <= 1 {
        true => Answer::holds("one minor version at most"),
        false => Answer::refused(
            format!("{low} and {high} are more than one minor version apart, and cannot be in one cluster"),
            format!("upgrade to {}.{} first", low.major, low.minor + 1),
        ),
    }
}

pub(super) fn forbidden(situation: &Situation<'_>, _: Gate) -> Answer {
    with_step(situation, forbidden_step)
}

pub(super) fn forbidden_step(step: Step) -> Answer {
    match FORBIDDEN.contains(&step.to) {
        false => Answer::holds("no version that loses data"),
        true => Answer::refused(
            format!("etcd {} can lose data when it is killed, and must not run", step.to),
            format!("use {RECOMMENDED_3_5} or later"),
        ),
    }
}

pub(super) fn floor_3_5(situation: &Situation<'_>, _: Gate) -> Answer {
    with_step(situation, floor_3_5_step)
}

pub(super) fn floor_3_5_step(step: Step) -> Answer {
    match crosses(step, (3, 4), (3, 5)) && step.to < FLOOR_3_5 {
        false => Answer::holds("3.5 is new enough"),
        true => Answer::refused(
            format!("from 3.4, {} is too old a 3.5: it must be {FLOOR_3_5} or later", step.to),
            format!("use {RECOMMENDED_3_5} or later"),
        ),
    }
}

pub(super) fn floor_3_6(situation: &Situation<'_>, _: Gate) -> Answer {
    with_step(situation, floor_3_6_step)
}

pub(super) fn floor_3_6_step(step: Step) -> Answer {
    let beside = [(3, 5), (3, 7)].into_iter().any(|other| crosses(step, other, (3, 6)));
    match beside && step.to < FLOOR_3_6 {
        false => Answer::holds("3.6 is new enough"),
        true => Answer::refused(
            format!("from {}, {} is too old a 3.6: it must be {FLOOR_3_6} or later", step.from, step.to),
            format!("use {FLOOR_3_6} or later"),
        ),
    }
}

pub(super) fn patch_3_5_first(situation: &Situation<'_>, _: Gate) -> Answer {
    with_step(situation, patch_3_5_step)
}

pub(super) fn patch_3_5_step(step: Step) -> Answer {
    match crosses(step, (3, 5), (3, 6)) && step.from < RECOMMENDED_3_5 {
        false => Answer::holds("3.5 was patched"),
        true => Answer::refused(
            format!(
                "etcd supports an upgrade to 3.6 only from {RECOMMENDED_3_5} or later, but this starts with {}: data of an older 3.5 can keep 3.6 from starting",
                step.from
            ),
            format!("upgrade to {RECOMMENDED_3_5} or later first"),
        ),
    }
}

pub(super) fn patch_3_6_first(situation: &Situation<'_>, _: Gate) -> Answer {
    with_step(situation, patch_3_6_step)
}

pub(super) fn patch_3_6_step(step: Step) -> Answer {
    match crosses(step, (3, 6), (3, 7)) && step.from < FLOOR_3_6 {
        false => Answer::holds("3.6 was patched"),
        true => Answer::refused(
            format!(
                "etcd supports an upgrade to 3.7 only from {FLOOR_3_6} or later, but this starts with {}: an older 3.6 may not work in one cluster with 3.7",
                step.from
            ),
            format!("upgrade to {FLOOR_3_6} or later first"),
        ),
    }
}

/// A cluster that is whole can be upgraded before its members change. One that is not has to be repaired as it is: otherwise there
/// would be no way to do either.
pub(super) fn patch_before_replace(situation: &Situation<'_>, _: Gate) -> Answer {
    let old = situation.now.views().find(|(_, view)| view.version.series() == (3, 5) && view.version < FLOOR_3_5);
    let Some((name, view)) = old else { return Answer::holds("no member runs an old 3.5") };
    let what = format!("{name} runs {}, and its snapshots may give new members an outdated member list", view.version);
    let is_under_way = matches!(situation.change, Some(MemberChange::Promote | MemberChange::RemoveReplaced));
    match unfit_for_upgrade(situation.now) {
        _ if is_under_way => Answer::holds(format!("{what}; the change has started, and is completed")),
        Some(why) => Answer::holds(format!(
            "{what}; it cannot be upgraded first, because {why}: after this, upgrade to {RECOMMENDED_3_5} or later"
        )),
        None => Answer::refused(
            what,
            format!("upgrade to {RECOMMENDED_3_5} or later first: `etcdrun playbook upgrade.yaml`"),
        ),
    }
}

/// Why a cluster cannot be upgraded before it is repaired, if it cannot.
fn unfit_for_upgrade(now: &Observation) -> Option<String> {
    if let Some(trouble) = now.members.iter().find_map(Seen::trouble) {
        return Some(trouble);
    }
    let is_seen = |id: u64| now.views().any(|(_, view)| view.id == id);
    let gone = now.list().iter().find(|member| !is_seen(member.id))?;
    Some(format!("{} does not answer", now.name(gone.id)))
}

pub(super) fn auth(situation: &Situation<'_>, _: Gate) -> Answer {
    let crosses = situation.step.is_some_and(|step| crosses(step, AUTH_HOP.0, AUTH_HOP.1));
    match (crosses, situation.now.auth, situation.consent.auth_hop) {
        (false, ..) => Answer::holds("authentication does not matter here"),
        (true, Some(false), _) => Answer::holds("authentication is disabled"),
        (true, _, true) => Answer::holds("the risk was accepted"),
        (true, None, false) => situation.unknown("whether authentication is enabled"),
        (true, Some(true), false) => Answer::refused(auth_refusal().0, auth_refusal().1),
    }
}

pub(in super::super) fn auth_refusal() -> (&'static str, &'static str) {
    (
        "authentication is enabled, and with it etcd does not support a rolling upgrade from 3.4 to 3.5: 3.5 counts the versions of users and roles differently",
        "disable authentication for this step (`etcdrun etcdctl CLUSTER -- auth disable`, afterwards `etcdrun etcdctl CLUSTER -- auth enable`), or accept the risk: `etcdrun playbook upgrade.yaml -l CLUSTER -e rollout_allow_auth_hop=true`",
    )
}

/// What all members should take for the cluster's version: what the oldest server is, or what a downgrade goes to.
fn expected(now: &Observation) -> Option<Series> {
    let downgrade = now.views().find_map(|(_, view)| view.downgrade);
    downgrade.or_else(|| now.views().map(|(_, view)| view.version.series()).min())
}

fn text(series: Option<Series>) -> String {
    series.map_or_else(|| "not decided".to_owned(), |(major, minor)| format!("{major}.{minor}"))
}

pub(super) fn cluster_version(situation: &Situation<'_>, _: Gate) -> Answer {
    let wanted = expected(situation.now);
    let behind = situation.now.views().find(|(_, view)| view.cluster_version != wanted);
    match behind {
        None => Answer::holds(format!("the cluster version is {}", text(wanted))),
        Some((name, view)) => Answer::refused(
            format!("{name} reports the cluster version {}, not {} yet", text(view.cluster_version), text(wanted)),
            "wait until the leader has raised it, which takes seconds, then `etcdrun resume`; otherwise the next version would crash",
        ),
    }
}

pub(super) fn storage_version(situation: &Situation<'_>, _: Gate) -> Answer {
    let wanted = expected(situation.now);
    // 3.5 has none, and neither does its data.
    let mut views = situation.now.views().filter(|(_, view)| view.version.series() >= (3, 6));
    let is_behind =
        |view: &View| view.storage_version != wanted && !(view.storage_version.is_none() && wanted < Some((3, 6)));
    match views.find(|(_, view)| is_behind(view)) {
        None => Answer::holds("the data on disk has that version"),
        Some((name, view)) => Answer::refused(
            format!("the data of {name} has version {}, not {} yet", text(view.storage_version), text(wanted)),
            "wait until it has rewritten it, which takes seconds, then `etcdrun resume`",
        ),
    }
}

pub(super) fn downgrade_enabled(situation: &Situation<'_>, _: Gate) -> Answer {
    let down = situation.step.filter(|step| step.to.series() < step.from.series());
    let Some(step) = down else { return Answer::holds("it is not a downgrade") };
    let to = step.to.series();
    let old = situation.now.views().find(|(_, view)| view.version.series() == to);
    let not_agreed = situation.now.views().find(|(_, view)| view.downgrade != Some(to));
    match (old, not_agreed) {
        (Some((name, _)), _) => Answer::holds(format!("{name} still runs {}", text(Some(to)))),
        (None, None) => Answer::holds(format!("the downgrade to {} is enabled in etcd", text(Some(to)))),
        (None, Some(_)) if step.from.series() < (3, 6) => Answer::refused(
            format!("no member runs {} any more, and {} cannot be downgraded", text(Some(to)), step.from),
            "restore a backup that was taken before the upgrade: `etcdrun restore CLUSTER --at TIME`",
        ),
        (None, Some((name, _))) => Answer::refused(
            format!("no member runs {} any more, and the downgrade is not enabled on {name}", text(Some(to))),
            "`etcdrun playbook downgrade.yaml -l CLUSTER` enables the downgrade first",
        ),
    }
}

/// If nobody says of which version the cluster is, nothing is lost by a try.
pub(super) fn way_back(situation: &Situation<'_>, _: Gate) -> Answer {
    let Some(step) = situation.step else { return Answer::holds("it had the same version") };
    let old = step.from.series();
    let newer = situation.now.views().find(|(_, view)| view.cluster_version > Some(old) && view.downgrade != Some(old));
    match newer {
        None => Answer::holds(format!("{} can run in the cluster", step.from)),
        Some((name, view)) => Answer::refused(
            format!(
                "{name} reports the cluster version {}, in which {} would not start",
                text(view.cluster_version),
                step.from
            ),
            format!(
                "fix what keeps {} from working, then `etcdrun resume`; from 3.6 on a complete cluster can be downgraded (`etcdrun playbook downgrade.yaml -l CLUSTER`)",
                step.to
            ),
        ),
    }
}

/// A member without data asks the others whether a downgrade is enabled, and then starts only in a cluster whose version is one above its
/// own. But that is lowered as soon as the downgrade is enabled: until it is over, no version can join.
pub(super) fn no_downgrade(situation: &Situation<'_>, _: Gate) -> Answer {
    const WAY_OUT: &str = "finish that downgrade (`etcdrun playbook downgrade.yaml -l CLUSTER`), or cancel it (`etcdrun playbook downgrade-cancel.yaml -l CLUSTER`)";
    // One that is cut off from the others may not have heard of its end.
    let views = situation.now.views().filter(|(_, view)| view.read.is_ok());
    let going_down = views.into_iter().find_map(|(name, view)| Some((name, view.downgrade?)));
    let Some((name, target)) = going_down else { return Answer::holds("no downgrade is in progress") };
    if situation.step.is_some_and(|step| goes_up(step) && step.to.series() > target) {
        return Answer::refused(format!("{name} is about to be downgraded to {}", text(Some(target))), WAY_OUT);
    }
    match situation.change {
        Some(MemberChange::AddLearner | MemberChange::AddVoter | MemberChange::Remove) => Answer::refused(
            format!(
                "a downgrade to {} is in progress, and until it is over etcd lets no new member join",
                text(Some(target))
            ),
            WAY_OUT,
        ),
        _ => Answer::holds("the downgrade in progress does not stand in the way"),
    }
}
