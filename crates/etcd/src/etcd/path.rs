//! The way from the versions that members run to the one that the inventory wants.
//!
//! ```text
//! hops(running, target, catalogue, ...) ──> [3.4.45 → 3.5.34, 3.5.34 → 3.6.15, 3.6.15 → 3.7.2]
//! ```
//!
//! Pure. One minor version at a time, each hop to a release that the catalogue has: of the minors in between the highest
//! patch that no rule forbids. A cluster whose members run two versions was left halfway, and goes on. What cannot be
//! gone is refused under the id of the rule that forbids it, with the way out.

use indexmap::IndexMap;
use serde::Serialize;

use super::{
    advisories::Concern,
    clients,
    observe::{Observation, Series},
    rules::{
        CLIENT_COMPAT, Consent, FLOOR_3_6, RECOMMENDED_3_5, RELEASE_KNOWN, Step, auth_refusal, for_cluster, is_off,
        step_refusal,
    },
};
use crate::{inventory::sections::EtcdClient, model::Version};

/// One turn around the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hop {
    /// What the farthest member runs before.
    pub from: Version,
    /// What all of them run afterwards.
    pub to: Version,
    pub kind: HopKind,
    /// What a person might want to know of it.
    pub note: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum HopKind {
    /// Within a minor version, up or down.
    Patch,
    /// To the next minor version.
    Upgrade,
    /// Back to the minor version that a member still runs.
    Rollback,
    /// To the minor version before, after etcd has agreed (`etcd_downgrade`).
    Downgrade,
}

/// Why there is no way.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}; {way_out}")]
pub struct PathError {
    /// The id of the rule that forbids it.
    pub rule: &'static str,
    pub message: String,
    pub way_out: String,
}

impl PathError {
    /// For a person: the rule's id, why, and what to do about it.
    pub fn told(&self, cluster: &str) -> String {
        format!("{}: {}; {}", self.rule, self.message, for_cluster(&self.way_out, cluster))
    }
}

/// Where an upgrade starts.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// What the members run.
    pub running: &'a [Version],
    /// Whether authentication is on, if that is known.
    pub auth: Option<bool>,
    pub consent: Consent,
    /// Clients that the inventory names, of a cluster whose clients must say who they are.
    pub clients: &'a [EtcdClient],
}

impl Hop {
    pub fn step(&self) -> Step {
        Step { from: self.from, to: self.to }
    }
}

/// The hops from what was observed to the target.
pub fn hops_from(
    observation: &Observation,
    target: Version,
    catalogue: &[Version],
    consent: Consent,
    clients: &[EtcdClient],
) -> Result<Vec<Hop>, PathError> {
    let running: Vec<Version> = observation.views().map(|(_, view)| view.version).collect();
    hops(Start { running: &running, auth: observation.auth, consent, clients }, target, catalogue)
}

/// What each member runs before each hop, by the version that the hop goes to: what a rollback puts back.
pub type Before = IndexMap<Version, IndexMap<String, Version>>;

pub fn before(running: &[(&str, Version)], hops: &[Hop]) -> Before {
    let came_from = std::iter::once(None).chain(hops.iter().map(|hop| Some(hop.to)));
    let members = |came_from: Option<Version>| {
        running.iter().map(|(name, version)| ((*name).to_owned(), came_from.unwrap_or(*version))).collect()
    };
    hops.iter().zip(came_from).map(|(hop, came_from)| (hop.to, members(came_from))).collect()
}

/// A member that could not be put back to what it runs before a hop, because the catalogue does not have that.
pub fn without_way_back<'a>(before: &'a Before, catalogue: &[Version]) -> Option<(&'a str, Version)> {
    let changes = before.iter().flat_map(|(to, members)| members.iter().filter(move |(_, version)| *version != to));
    changes.map(|(name, version)| (name.as_str(), *version)).find(|(_, version)| !catalogue.contains(version))
}

/// The hops to the target; none if it is reached.
pub fn hops(start: Start<'_>, target: Version, catalogue: &[Version]) -> Result<Vec<Hop>, PathError> {
    let (Some(low), Some(high)) = (start.running.iter().min().copied(), start.running.iter().max().copied()) else {
        return Err(error("answers", "no member reports its version", "start the cluster first"));
    };
    if low == target && high == target {
        return Ok(Vec::new());
    }
    if high.series() > (low.major, low.minor + 1) && !is_off("one-minor") {
        return Err(error(
            "one-minor",
            format!("members run {low} and {high}, which cannot be in one cluster"),
            format!("downgrade the members that run {high} to {}.{} by hand", low.major, low.minor + 1),
        ));
    }
    if !catalogue.contains(&target) && !is_off(RELEASE_KNOWN.id) {
        return Err(unlisted(target));
    }
    let hops = match target.series() < high.series() {
        true => down(low, high, target, catalogue)?,
        false => up(start, low, high, target, catalogue)?,
    };
    work_for_clients(&hops, start.clients)?;
    Ok(hops)
}

/// The clients that the inventory names must be able to work with every version on the way.
fn work_for_clients(hops: &[Hop], known: &[EtcdClient]) -> Result<(), PathError> {
    if is_off(CLIENT_COMPAT.id) {
        return Ok(());
    }
    let refused = hops.iter().flat_map(|hop| known.iter().map(move |client| clients::refusal(client, hop.step())));
    match refused.flatten().next() {
        Some((message, way_out)) => Err(error(CLIENT_COMPAT.id, message, way_out)),
        None => Ok(()),
    }
}

fn up(
    start: Start<'_>,
    low: Version,
    high: Version,
    target: Version,
    catalogue: &[Version],
) -> Result<Vec<Hop>, PathError> {
    let mut hops = Vec::new();
    let mut at = low;
    let newest = |series: Series| start.running.iter().filter(|version| version.series() == series).max().copied();
    // An old 3.5 or 3.6 is patched before anything newer comes; not if something newer has come already.
    let way = Step { from: at, to: Version { patch: u16::MAX, ..next(at.series(), 1) } };
    if at.series() == high.series() && target.series() > at.series() && step_refusal(way).is_some() {
        let to = best(at, at.series(), newest(at.series()), target, catalogue)?;
        hops.push(hop(at, to, HopKind::Patch));
        at = to;
    }
    while at.series() < target.series() {
        let series = next(at.series(), 1).series();
        let to = match series == target.series() {
            true => target,
            false => best(at, series, newest(series), target, catalogue)?,
        };
        check(at, to, start).map_err(|error| back_first(error, low, high))?;
        hops.push(hop(at, to, HopKind::Upgrade));
        at = to;
    }
    if hops.is_empty() {
        let from = if low == target { high } else { low };
        check(from, target, start)?;
        hops.push(hop(from, target, HopKind::Patch));
    }
    Ok(hops)
}

/// What a cluster that was left halfway cannot do where it is, it can do once its newer members are back.
fn back_first(error: PathError, low: Version, high: Version) -> PathError {
    if low.series() == high.series() || !error.rule.starts_with("patch-") {
        return error;
    }
    let (major, minor) = low.series();
    let way_out = format!(
        "{}: set `etcd.version` to such a {major}.{minor}, run `etcdrun playbook downgrade.yaml`, which downgrades the members that run {high}, and upgrade from there",
        error.way_out
    );
    PathError { way_out, ..error }
}

fn down(low: Version, high: Version, target: Version, catalogue: &[Version]) -> Result<Vec<Hop>, PathError> {
    let mut hops = Vec::new();
    let mut at = high;
    // Left halfway, up or down: the members that are newer join the others first.
    if low.series() < high.series() {
        let to = match low.series() == target.series() {
            true => target,
            false => best(high, low.series(), None, target, catalogue)?,
        };
        allow(high, to)?;
        hops.push(hop(high, to, HopKind::Rollback));
        at = to;
    }
    while at.series() > target.series() {
        if at.series() < (3, 6) {
            return Err(error(
                "downgrade-enabled",
                format!(
                    "etcd supports an online downgrade only from 3.6 on, so {at} cannot be downgraded to {target} while the cluster serves"
                ),
                "restore a snapshot that was taken before the upgrade",
            ));
        }
        let series = next(at.series(), -1).series();
        let to = match series == target.series() {
            true => target,
            false => best(at, series, None, target, catalogue)?,
        };
        allow(at, to)?;
        hops.push(hop(at, to, HopKind::Downgrade));
        at = to;
    }
    Ok(hops)
}

/// The first version of the minor that is so far away.
fn next(series: Series, by: i16) -> Version {
    Version { major: series.0, minor: series.1.saturating_add_signed(by), patch: 0 }
}

fn hop(from: Version, to: Version, kind: HopKind) -> Hop {
    let note = match (kind, Concern::of(to)) {
        (HopKind::Rollback, _) => Some("a rollback, without a downgrade of the data".to_owned()),
        (_, Some(concern)) => Some(format!("{} or later is better: {to} has {}", concern.fixed_in, concern.told())),
        (_, None) => None,
    };
    Hop { from, to, kind, note }
}

fn allow(from: Version, to: Version) -> Result<(), PathError> {
    match step_refusal(Step { from, to }) {
        Some((rule, message, way_out)) => Err(error(rule, message, way_out)),
        None => Ok(()),
    }
}

fn check(from: Version, to: Version, start: Start<'_>) -> Result<(), PathError> {
    allow(from, to)?;
    let is_auth_hop = from.series() == (3, 4) && to.series() == (3, 5);
    if is_auth_hop && start.auth == Some(true) && !start.consent.auth_hop && !is_off("auth-3.4") {
        let (message, way_out) = auth_refusal();
        return Err(error("auth-3.4", message, way_out));
    }
    Ok(())
}

/// The highest patch of a minor version that may be gone to, and is not older than what a member runs already.
fn best(
    from: Version,
    series: Series,
    newest: Option<Version>,
    target: Version,
    catalogue: &[Version],
) -> Result<Version, PathError> {
    let usable = |version: &Version| {
        // On the way to the next minor version, a 3.5 must be one from which 3.6 may follow.
        let onward = Step { from: *version, to: Version { patch: u16::MAX, ..next(series, 1) } };
        let leads_on = target.series() <= series || step_refusal(onward).is_none();
        step_refusal(Step { from, to: *version }).is_none()
            && leads_on
            && newest.is_none_or(|newest| *version >= newest)
    };
    let of_series = || catalogue.iter().copied().filter(|version| version.series() == series);
    if let Some(found) = of_series().filter(usable).max() {
        return Ok(found);
    }
    let (major, minor) = series;
    let wanted = match minor {
        5 => RECOMMENDED_3_5,
        6 => FLOOR_3_6,
        _ => next(series, 0),
    };
    let wanted = newest.map_or(wanted, |newest| newest.max(wanted));
    if is_off(RELEASE_KNOWN.id) {
        return Ok(wanted);
    }
    let has = match of_series().max() {
        Some(old) => format!("`etcd_releases` has nothing newer of it than {old}"),
        None => format!("`etcd_releases` has no {major}.{minor}"),
    };
    Err(error(
        RELEASE_KNOWN.id,
        format!("the path from {from} to {target} needs a {major}.{minor}, and {has}"),
        format!("add {wanted} or a later {major}.{minor} to `etcd_releases`: `etcdrun releases add {wanted}`"),
    ))
}

fn unlisted(version: Version) -> PathError {
    error(
        RELEASE_KNOWN.id,
        format!("etcd {version} is not in `etcd_releases`"),
        format!("add {version} to the inventory: `etcdrun releases add {version}`"),
    )
}

fn error(rule: &'static str, message: impl Into<String>, way_out: impl Into<String>) -> PathError {
    PathError { rule, message: message.into(), way_out: way_out.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn versions(text: &str) -> Vec<Version> {
        text.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }

    const ALL: &str = "3.4.45 3.5.0 3.5.20 3.5.26 3.5.34 3.6.5 3.6.11 3.6.15 3.7.2";

    /// `running` to `target`, as `3.5.34 3.6.15`, or the rule that forbids it.
    fn way(running: &str, target: &str, catalogue: &str) -> String {
        let start = Start { running: &versions(running), auth: Some(false), consent: Consent::default(), clients: &[] };
        match hops(start, target.parse().unwrap(), &versions(catalogue)) {
            Ok(hops) => hops.iter().map(|hop| hop.to.to_string()).collect::<Vec<_>>().join(" "),
            Err(error) => format!("{}: {error}", error.rule),
        }
    }

    #[test]
    fn one_minor_after_the_other_by_the_highest_patches() {
        assert_eq!(way("3.4.45 3.4.45 3.4.45", "3.7.2", ALL), "3.5.34 3.6.15 3.7.2");
        assert_eq!(way("3.5.34 3.5.34 3.5.34", "3.7.2", ALL), "3.6.15 3.7.2");
        assert_eq!(way("3.7.2", "3.7.2", ALL), "");
        assert_eq!(way("3.6.11", "3.6.15", ALL), "3.6.15");
        assert_eq!(way("3.6.15", "3.6.11", ALL), "3.6.11");
        assert_eq!(way("3.4.45", "3.5.26", ALL), "3.5.26");
    }

    #[test]
    fn an_old_3_6_is_patched_before_3_7() {
        assert_eq!(way("3.6.5 3.6.5 3.6.5", "3.7.2", ALL), "3.6.15 3.7.2");
        assert_eq!(way("3.6.10 3.6.15", "3.7.2", ALL), "3.6.15 3.7.2");
        assert_eq!(way("3.6.11", "3.7.2", ALL), "3.7.2");
        let missing = way("3.6.5", "3.7.2", "3.6.5 3.6.10 3.7.2");
        assert!(missing.starts_with("release-known") && missing.contains("add 3.6.11 or a later 3.6"), "{missing}");
        // Beside 3.7 it cannot be patched any more: the newer ones go back first.
        let mixed = way("3.6.5 3.7.2", "3.7.2", ALL);
        assert!(mixed.starts_with("patch-3.6-first") && mixed.contains("playbook downgrade.yaml"), "{mixed}");
        assert_eq!(way("3.6.5 3.7.2", "3.6.15", ALL), "3.6.15");
        assert!(way("3.7.2", "3.6.5", ALL).starts_with("floor-3.6"));
    }

    #[test]
    fn an_old_3_5_is_patched_first() {
        assert_eq!(way("3.5.10 3.5.10 3.5.10", "3.6.15", ALL), "3.5.34 3.6.15");
        assert_eq!(way("3.5.0", "3.7.2", ALL), "3.5.34 3.6.15 3.7.2");
        assert_eq!(way("3.5.10 3.5.34", "3.6.15", ALL), "3.5.34 3.6.15");
        assert_eq!(way("3.5.31", "3.6.15", ALL), "3.5.34 3.6.15");
        assert_eq!(way("3.5.32", "3.6.15", ALL), "3.6.15");
        assert!(way("3.4.45", "3.6.15", "3.5.31 3.6.15").contains("add 3.5.32 or a later 3.5"));
        assert!(way("3.5.10", "3.6.15", "3.6.15 3.5.20").contains("add 3.5.32 or a later 3.5"));
        assert!(way("3.5.10 3.6.15", "3.6.15", ALL).starts_with("patch-3.5-first"));
    }

    #[test]
    fn what_was_left_halfway_goes_on() {
        assert_eq!(way("3.5.34 3.6.15 3.5.34", "3.7.2", ALL), "3.6.15 3.7.2");
        assert_eq!(way("3.6.15 3.6.15 3.7.2", "3.7.2", ALL), "3.7.2");
        assert_eq!(way("3.6.11 3.6.15", "3.6.15", ALL), "3.6.15");
        // What already runs must be at hand, or something newer.
        assert!(
            way("3.5.34 3.6.16", "3.7.2", ALL)
                .ends_with("add 3.6.16 or a later 3.6 to `etcd_releases`: `etcdrun releases add 3.6.16`")
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        assert_eq!(
            way("3.5.34", "3.7.2", "3.7.2"),
            "release-known: the path from 3.5.34 to 3.7.2 needs a 3.6, and `etcd_releases` has no 3.6; add 3.6.11 or a later 3.6 to `etcd_releases`: `etcdrun releases add 3.6.11`"
        );
        assert!(way("3.4.45", "3.6.15", "3.5.20 3.6.15").contains("nothing newer of it than 3.5.20; add 3.5.32"));
        assert!(way("3.4.45", "3.5.33", ALL).contains("add 3.5.33 to the inventory"));
    }

    #[test]
    fn forbidden_versions_and_floors_hold_for_the_target_too() {
        assert!(way("3.4.45", "3.5.0", ALL).starts_with("forbidden-3.5.0"));
        assert!(way("3.5.34", "3.5.0", ALL).starts_with("forbidden-3.5.0"));
        assert!(way("3.4.45", "3.5.20", ALL).starts_with("floor-3.5"));
        assert!(way("3.5.34", "3.6.5", ALL).starts_with("floor-3.6"));
        assert!(way("3.4.45 3.6.15", "3.7.2", ALL).starts_with("one-minor"));
    }

    #[test]
    fn with_authentication_there_is_no_way_from_3_4_unless_it_is_allowed() {
        let start = Start { running: &versions("3.4.45"), auth: Some(true), consent: Consent::default(), clients: &[] };
        let refused = hops(start, versions("3.7.2")[0], &versions(ALL)).unwrap_err();
        assert_eq!(refused.rule, "auth-3.4");
        assert!(refused.way_out.contains("allow_auth_hop"), "{refused}");
        let allowed = Start { consent: Consent { auth_hop: true, ..Consent::default() }, ..start };
        assert_eq!(hops(allowed, versions("3.7.2")[0], &versions(ALL)).unwrap().len(), 3);
    }

    #[test]
    fn a_client_that_would_lose_its_etcd_is_upgraded_first() {
        let rule = |running: &str, target: &str, patroni: &str| {
            let clients = [EtcdClient {
                name: crate::inventory::sections::ClientName::Patroni,
                version: patroni.parse().unwrap(),
            }];
            let start =
                Start { running: &versions(running), auth: Some(true), consent: Consent::default(), clients: &clients };
            let catalogue = versions("3.5.27 3.5.28 3.5.34 3.6.15");
            hops(start, target.parse().unwrap(), &catalogue).map_or_else(|error| error.rule, |_| "")
        };
        assert_eq!(rule("3.5.27", "3.5.34", "4.0.7"), "client-compat");
        assert_eq!(rule("3.5.27", "3.6.15", "4.0.7"), "client-compat");
        assert_eq!(rule("3.5.27", "3.5.34", "4.0.8"), "");
        assert_eq!(rule("3.5.34", "3.6.15", "4.0.7"), "", "it has managed so far");
        assert_eq!(rule("3.5.27", "3.5.28", "4.1.4"), "client-compat", "only root may list members there");
    }

    #[test]
    fn down_goes_by_etcds_leave_or_while_an_old_member_is_left() {
        let kinds = |running: &str, target: &str| -> Vec<HopKind> {
            let start = Start { running: &versions(running), auth: None, consent: Consent::default(), clients: &[] };
            hops(start, target.parse().unwrap(), &versions(ALL)).unwrap().iter().map(|hop| hop.kind).collect()
        };
        assert_eq!(kinds("3.6.15 3.6.15", "3.5.34"), [HopKind::Downgrade]);
        assert_eq!(kinds("3.7.2", "3.5.34"), [HopKind::Downgrade, HopKind::Downgrade]);
        assert_eq!(kinds("3.6.15 3.5.34", "3.5.34"), [HopKind::Rollback]);
        assert_eq!(kinds("3.5.34 3.4.45", "3.4.45"), [HopKind::Rollback]);
        assert_eq!(kinds("3.7.2 3.6.15", "3.5.34"), [HopKind::Rollback, HopKind::Downgrade]);
        assert!(way("3.6.15 3.5.34", "3.4.45", ALL).starts_with("downgrade-enabled"));
        assert!(way("3.5.34", "3.4.45", ALL).starts_with("downgrade-enabled"));
    }

    #[test]
    fn a_rollback_puts_back_what_each_member_ran_if_the_catalogue_has_it() {
        let of = |text: &str| -> Version { text.parse().unwrap() };
        let running = [("a", of("3.5.34")), ("b", of("3.5.20"))];
        let versions: Vec<Version> = running.iter().map(|(_, version)| *version).collect();
        let start = Start { running: &versions, auth: Some(false), consent: Consent::default(), clients: &[] };
        let catalogue = [of("3.5.34"), of("3.6.15"), of("3.7.2")];
        let hops = hops(start, of("3.7.2"), &catalogue).unwrap();
        let before = before(&running, &hops);
        let first = hops[0].to;
        assert_eq!((before[&first]["a"], before[&first]["b"]), (of("3.5.34"), of("3.5.20")));
        assert_eq!(before[&of("3.7.2")]["b"], of("3.6.15"), "it has gone the way of all by then");
        assert_eq!(without_way_back(&before, &catalogue), Some(("b", of("3.5.20"))));
        let whole = [&catalogue[..], &[of("3.5.20")]].concat();
        assert_eq!(without_way_back(&before, &whole), None);
    }

    fn version() -> impl Strategy<Value = Version> {
        (4u16..=7, 0u16..=40).prop_map(|(minor, patch)| Version { major: 3, minor, patch })
    }

    proptest! {
        #[test]
        fn whatever_runs_every_hop_obeys_the_rules(
            running in prop::collection::vec(version(), 1..6),
            target in version(),
            catalogue in prop::collection::vec(version(), 0..40),
        ) {
            let start = Start { running: &running, auth: Some(false), consent: Consent::default(), clients: &[] };
            let Ok(hops) = hops(start, target, &catalogue) else { return Ok(()) };
            if hops.is_empty() {
                prop_assert!(running.iter().all(|version| *version == target));
                return Ok(());
            }
            prop_assert_eq!(hops.last().unwrap().to, target);
            prop_assert!(hops.windows(2).all(|pair| pair[0].to == pair[1].from));
            for hop in &hops {
                prop_assert!(catalogue.contains(&hop.to));
                prop_assert!(hop.from.minor.abs_diff(hop.to.minor) <= 1);
                prop_assert!(!(hop.to.minor == 5 && hop.to.patch <= 2));
                prop_assert!(step_refusal(hop.step()).is_none());
            }
        }

        #[test]
        fn a_path_cut_off_anywhere_is_gone_on_with(
            minor in 4u16..=6,
            target in 5u16..=7,
            done in 0usize..=3,
            hop in 0usize..3,
        ) {
            let catalogue = versions("3.4.45 3.5.34 3.6.15 3.7.2");
            let (first, last) = (catalogue[usize::from(minor - 4)], catalogue[usize::from(target - 4)]);
            prop_assume!(first < last);
            let go = |running: &[Version]| {
                hops(Start { running, auth: None, consent: Consent::default(), clients: &[] }, last, &catalogue).unwrap()
            };
            let whole = go(&[first; 3]);
            prop_assume!(hop < whole.len());
            let mut running = [whole[hop].from; 3];
            running[..done].fill(whole[hop].to);
            let rest = go(&running);
            let wanted = if done == 3 { &whole[hop + 1..] } else { &whole[hop..] };
            prop_assert_eq!(rest, wanted.to_vec());
        }
    }
}
