//! The rules, one row each: what is known of a rule stands there, and nowhere else. A new one needs a row, a case in `tests`, and its
//! lines in docs/gates.md and docs/refusals.md, which tests hold against the rows.

use std::time::Duration;

use super::{Answer, Gate, Profile, Situation, Step, addresses, changes, cluster, data, hosts, versions};

type Check = fn(&Situation<'_>, Gate) -> Answer;
type StepCheck = fn(Step) -> Answer;

/// A rule: its id, what it demands, where it is asked, and whether waiting helps.
#[derive(Clone, Copy)]
pub struct Rule {
    pub id: &'static str,
    pub demands: &'static str,
    pub waiting: Waiting,
    /// The profiles that ask it, for each gate.
    profiles: [&'static [Profile]; Gate::ALL.len()],
    /// Whether it is asked before every restart of a member, also outside of turns.
    pub(super) at_every_restart: bool,
    /// Whether it is about the quorum that the change itself costs, so that an accepted outage sets it aside.
    pub(super) about_outage: bool,
    /// What it says of a step between versions alone, for looking for a way.
    pub(super) step: Option<StepCheck>,
    pub(super) check: Check,
}

/// Whether a rule that does not hold may hold a moment later, with nothing done about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    Helps,
    Useless,
    HelpsFor(Duration),
    UselessAt(Gate),
}

impl Waiting {
    /// Whether it helps to wait longer at this gate, after having waited for so much time.
    pub(super) fn helps(self, gate: Gate, waited: Duration) -> bool {
        match self {
            Self::Helps => true,
            Self::Useless => false,
            Self::HelpsFor(limit) => waited < limit,
            Self::UselessAt(other) => gate != other,
        }
    }
}

const fn rule(id: &'static str, demands: &'static str, check: Check) -> Rule {
    let profiles = [&[] as &[Profile]; Gate::ALL.len()];
    Rule {
        id,
        demands,
        waiting: Waiting::Helps,
        profiles,
        at_every_restart: false,
        about_outage: false,
        step: None,
        check,
    }
}

impl Rule {
    pub fn is_asked(&self, profile: Profile, gate: Gate) -> bool {
        self.profiles[gate as usize].contains(&profile)
    }

    const fn at(mut self, gate: Gate, profiles: &'static [Profile]) -> Self {
        self.profiles[gate as usize] = profiles;
        self
    }

    const fn begin(self, profiles: &'static [Profile]) -> Self {
        self.at(Gate::Begin, profiles)
    }

    const fn before(self, profiles: &'static [Profile]) -> Self {
        self.at(Gate::Before, profiles)
    }

    const fn stop(self, profiles: &'static [Profile]) -> Self {
        self.at(Gate::Stop, profiles)
    }

    const fn after(self, profiles: &'static [Profile]) -> Self {
        self.at(Gate::After, profiles)
    }

    const fn settled(self, profiles: &'static [Profile]) -> Self {
        self.at(Gate::Settled, profiles)
    }

    const fn back(self, profiles: &'static [Profile]) -> Self {
        self.at(Gate::Back, profiles)
    }

    /// A member starts with something new, of which etcd may die: one that died of it is not followed by another.
    const fn at_every_restart(mut self) -> Self {
        self.at_every_restart = true;
        self
    }

    const fn about_outage(mut self) -> Self {
        self.about_outage = true;
        self
    }

    const fn on_the_way(mut self, step: StepCheck) -> Self {
        self.step = Some(step);
        self
    }

    const fn fails_at_once(mut self) -> Self {
        self.waiting = Waiting::Useless;
        self
    }

    const fn fails_at_once_at(mut self, gate: Gate) -> Self {
        self.waiting = Waiting::UselessAt(gate);
        self
    }

    const fn waits_at_most(mut self, limit: Duration) -> Self {
        self.waiting = Waiting::HelpsFor(limit);
        self
    }
}

const ALL: &[Profile] = &Profile::ALL;
/// A clock that is wrong after a boot is set within this time, or nothing sets it.
const CLOCKS_ARE_SET: Duration = Duration::from_secs(30);

/// etcd's leader ends a downgrade within seconds once all members have arrived. An unfinished one does not end by itself.
const DOWNGRADE_ENDS: Duration = Duration::from_secs(30);

#[rustfmt::skip]
pub static RULES: &[Rule] = {
    use Profile::{Certificate, Nospace, Replace, Restart, Upgrade};
    &[
        rule("reachable", "SSH reaches every host", hosts::reachable)
            .before(&[Upgrade, Restart, Nospace, Certificate]).stop(&[Certificate]),
        rule("answers", "every member except the one being changed answers", cluster::answers)
            .before(&[Upgrade, Restart, Nospace]).after(ALL).settled(ALL).at_every_restart(),
        rule("one-leader", "all members follow the same leader", cluster::one_leader)
            .before(&[Upgrade, Restart, Replace, Nospace]).stop(&[Upgrade, Restart]).after(ALL).settled(ALL),
        rule("members-agree", "every member lists the same members", cluster::members_agree)
            .before(&[Upgrade, Restart, Replace, Nospace]).settled(ALL),
        rule("raft-agrees", "the Raft of the leader counts the members that etcd lists", cluster::raft_agrees)
            .before(&[Upgrade, Restart, Replace, Nospace]).stop(&[Upgrade, Restart]).at_every_restart(),
        rule("members-known", "the members are those of the inventory", cluster::members_known)
            .before(&[Upgrade, Restart, Nospace]).settled(&[Upgrade, Restart, Replace, Nospace]),
        rule("addresses-known", "etcd lists the peer addresses that the inventory has", addresses::known)
            .before(&[Upgrade, Replace, Nospace]).after(&[Upgrade, Restart]).settled(&[Upgrade, Restart, Replace]).fails_at_once(),
        rule("address-at-start", "the member being changed would start at the peer address that etcd lists", addresses::at_start)
            .stop(&[Upgrade, Restart, Nospace, Certificate]).fails_at_once(),
        rule("peer-ports", "the member being changed and the others reach each other's peer ports by new connections", addresses::peer_ports)
            .before(&[Upgrade, Restart]),
        rule("client-port", "members serve clients at the port that the inventory has", addresses::client_port)
            .before(&[Upgrade, Restart, Nospace]).fails_at_once(),
        rule("client-address", "members serve clients at the address that the inventory has", addresses::client_address)
            .before(&[Upgrade, Restart, Nospace]).fails_at_once(),
        rule("members-started", "every member has started (a member has a name only after its start)", cluster::members_started)
            .before(&[Upgrade, Restart, Nospace]).settled(&[Restart, Replace, Nospace]),
        rule("members-unchanged", "the members are the same as before", cluster::members_unchanged)
            .after(&[Upgrade, Restart, Nospace]).fails_at_once(),
        rule("no-learner", "no member is a learner", cluster::no_learner)
            .before(&[Upgrade, Restart, Replace, Nospace]).after(&[Replace]).settled(&[Restart, Replace, Nospace]),
        rule("no-alarm", "there is no alarm", cluster::no_alarm)
            .before(&[Upgrade, Restart]).stop(&[Upgrade, Restart]).settled(&[Upgrade, Restart])
            // An alarm that is there before anything was done does not go by itself.
            .fails_at_once_at(Gate::Before),
        rule("no-corrupt", "there is no alarm except NOSPACE", cluster::no_corrupt)
            .before(&[Replace, Nospace]).after(&[Nospace, Certificate]).settled(&[Replace, Nospace]),
        rule("no-new-alarm", "no alarm was raised during the change", cluster::no_new_alarm)
            .after(&[Upgrade, Restart, Replace]),
        rule("linearizable-read", "every member answers a linearizable read", cluster::linearizable_read)
            .before(&[Upgrade, Restart, Nospace]).after(ALL).settled(ALL),
        rule("quorum-now", "a majority of the voters is healthy", cluster::quorum_now)
            .before(&[Replace, Nospace]),
        rule("quorum-after", "without the member being changed, the healthy voters are a majority", cluster::quorum_after)
            .before(&[Upgrade, Restart, Replace]).stop(&[Upgrade, Restart, Replace, Nospace]).at_every_restart().about_outage(),
        rule("small-cluster", "a cluster of one or two voters changes only if the outage is accepted", cluster::small_cluster)
            .before(&[Upgrade, Restart, Replace]).stop(&[Upgrade, Restart, Replace, Nospace]).at_every_restart().about_outage().fails_at_once(),
        rule("caught-up", "every member has caught up with the leader", cluster::caught_up)
            .before(&[Upgrade, Restart]).after(&[Upgrade, Restart, Replace]),
        rule("leader-off", "the member being changed is not the leader", cluster::leader_off)
            .stop(&[Upgrade, Restart, Replace]),
        rule("clock", "clocks differ by less than a second", hosts::clock)
            .before(&[Upgrade, Restart, Replace, Certificate]).waits_at_most(CLOCKS_ARE_SET),
        rule("disk-room", "disks have enough free space", hosts::disk_room)
            .before(&[Upgrade, Restart, Nospace]).fails_at_once(),
        rule("binary-verified", "the new etcd binary is there, with the right checksum", hosts::binary_verified)
            .before(&[Upgrade]).fails_at_once(),
        rule("strict-reconfig", "etcd checks membership changes", hosts::strict_reconfig)
            .before(&[Upgrade, Restart, Replace]).fails_at_once(),
        rule("unreachable-is-not-dead", "a member that others still reach is not replaced", hosts::unreachable_is_not_dead)
            .before(&[Replace]).stop(&[Replace]),
        rule("snapshot-verified", "a snapshot was taken within the last hour and verified page by page", data::snapshot_verified)
            .before(&[Upgrade, Replace]).fails_at_once(),
        rule("data-agrees", "all members have the same data, by etcd's hash (HashKV)", data::data_agrees)
            .begin(&[Upgrade, Replace]).fails_at_once(),
        rule("versions-expected", "every member runs a version that this change expects", versions::versions_expected)
            .before(&[Upgrade]).after(&[Upgrade, Restart]).settled(&[Upgrade]),
        rule("one-minor", "one minor version at a time", versions::one_minor)
            .before(&[Upgrade]).on_the_way(versions::minors).fails_at_once(),
        rule("forbidden-3.5.0", "never to 3.5.0, 3.5.1 or 3.5.2", versions::forbidden)
            .before(&[Upgrade]).on_the_way(versions::forbidden_step).fails_at_once(),
        rule("floor-3.5", "from 3.4 only to 3.5.26 or later", versions::floor_3_5)
            .before(&[Upgrade]).on_the_way(versions::floor_3_5_step).fails_at_once(),
        rule("floor-3.6", "from 3.5 or 3.7 only to 3.6.11 or later", versions::floor_3_6)
            .before(&[Upgrade]).on_the_way(versions::floor_3_6_step).fails_at_once(),
        rule("patch-3.5-first", "to 3.6 only from 3.5.32 or later", versions::patch_3_5_first)
            .before(&[Upgrade]).on_the_way(versions::patch_3_5_step).fails_at_once(),
        rule("patch-3.6-first", "to 3.7 only from 3.6.11 or later", versions::patch_3_6_first)
            .before(&[Upgrade]).on_the_way(versions::patch_3_6_step).fails_at_once(),
        rule("auth-3.4", "no rolling upgrade from 3.4 to 3.5 with authentication enabled", versions::auth)
            .before(&[Upgrade]).fails_at_once(),
        rule("cluster-version", "every member reports the cluster version of its binaries", versions::cluster_version)
            .before(&[Upgrade]).settled(&[Upgrade]),
        rule("storage-version", "from 3.6 on, the data on disk has the cluster's version", versions::storage_version)
            .before(&[Upgrade]).settled(&[Upgrade]),
        rule("downgrade-enabled", "down only while a member runs the old version, or after the downgrade is enabled in etcd", versions::downgrade_enabled)
            .before(&[Upgrade]),
        rule("way-back", "the cluster version is not newer than the version to roll back to", versions::way_back)
            .back(ALL).fails_at_once(),
        rule("no-downgrade", "no upgrade, and no new member, while a downgrade is in progress", versions::no_downgrade)
            .before(&[Upgrade, Replace]).stop(&[Replace]).waits_at_most(DOWNGRADE_ENDS),
        rule("patch-before-replace", "a 3.5 below 3.5.26 is upgraded before its members change, if that is possible", versions::patch_before_replace)
            .before(&[Replace]).fails_at_once(),
        rule("learners-only", "new members join as learners", changes::learners_only)
            .before(&[Replace]),
        rule("dead-goes-first", "a failed member is removed before another is added", changes::dead_goes_first)
            .before(&[Replace]),
        rule("as-decided", "a member to be removed is still in the state that the decision was based on", changes::as_decided)
            .before(&[Replace]).stop(&[Replace]).fails_at_once(),
        rule("live-goes-last", "a healthy member is removed only after another has replaced it", changes::live_goes_last)
            .before(&[Replace]),
    ]
};

/// A rule about the path to another version. It is checked once, before any member is changed.
pub struct PathRule {
    pub id: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "docs/gates.md is held against it"))]
    pub(super) demands: &'static str,
}

pub const RELEASE_KNOWN: PathRule =
    PathRule { id: "release-known", demands: "every version on the path is in `etcd_releases`" };
pub const CLIENT_COMPAT: PathRule = PathRule {
    id: "client-compat",
    demands: "clients that the inventory names can work with every version on the path",
};
/// Checked before the upgrade to 3.6.
pub const NO_V2_CONTENT: PathRule =
    PathRule { id: "no-v2-content", demands: "to 3.6 only without v2 API data on any member" };
