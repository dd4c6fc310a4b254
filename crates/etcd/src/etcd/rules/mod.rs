//! The rules that keep a cluster serving while its members are changed, each under an id that stays.
//!
//! ```text
//! observe ──> Situation ──> judge(profile, gate) ──> Verdict: what holds, what does not, and the way out
//! ```
//!
//! Pure: a rule looks at what was observed and at what is intended, and asks nobody. A profile says which rules count for
//! which kind of change: "all are well, and no alarm" is right for an upgrade, and would forbid to mend what is broken.
//! A gate says when they are asked. What a rule needs to know and nobody looked at counts against it, except in a plan.
//!
//! For tests only, and only in debug builds: `ETCDRUN_TEST_RULE_OFF=ID` switches one rule off.

mod addresses;
mod changes;
mod cluster;
mod data;
mod hosts;
mod situation;
#[cfg(test)]
mod tests;
mod versions;

use serde::Serialize;

pub use addresses::is_at;
pub use data::SNAPSHOT_AGE;
pub use situation::{Consent, Decided, HostSeen, MemberChange, ReleaseSeen, Room, Situation, SnapshotSeen, Step};
pub use versions::{FLOOR_3_5, FLOOR_3_6, RECOMMENDED_3_5};
pub(super) use versions::{auth_refusal, step_refusal};

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Another version, up or down.
    Upgrade,
    /// The same version again: settings, certificates with new keys, a boot.
    Restart,
    /// A member goes, and another comes.
    Replace,
    /// The quota is used up: compact, defragment, disarm.
    Nospace,
    /// Certificates are expired: nothing of etcd's may be needed.
    Certificate,
}

/// When rules are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Once, before the first member has its turn. For what costs too much to be asked in every turn.
    Begin,
    /// Before anything is done to a member.
    Before,
    /// Right before it is stopped, by a look that was taken for this.
    Stop,
    /// Once it has started again.
    After,
    /// Once all members have had their turn, and before the next version.
    Settled,
    /// Before a member whose turn has failed gets back what it had.
    Back,
}

/// What a rule says of a situation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "answer")]
pub enum Answer {
    Holds {
        what: String,
    },
    Refused {
        what: String,
        way_out: String,
    },
    /// Nobody looked at what it needs to know.
    Unknown {
        what: String,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    pub rule: &'static str,
    #[serde(flatten)]
    pub answer: Answer,
}

/// What all rules of a gate say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub findings: Vec<Finding>,
}

type Check = fn(&Situation<'_>, Gate) -> Answer;

/// Every rule: its id, what it demands, and how it is told.
pub struct Rule {
    pub id: &'static str,
    pub demands: &'static str,
    check: Check,
}

const fn rule(id: &'static str, demands: &'static str, check: Check) -> Rule {
    Rule { id, demands, check }
}

#[rustfmt::skip]
pub static RULES: &[Rule] = &[
    rule("reachable", "SSH reaches every host", hosts::reachable),
    rule("answers", "every member except the one being changed answers", cluster::answers),
    rule("one-leader", "all members follow the same leader", cluster::one_leader),
    rule("members-agree", "every member lists the same members", cluster::members_agree),
    rule("members-known", "the members are those of the inventory", cluster::members_known),
    rule("addresses-known", "etcd lists the peer addresses that the inventory has", addresses::known),
    rule("address-at-start", "the member being changed would start at the peer address that etcd lists", addresses::at_start),
    rule("client-port", "members serve clients at the port that the inventory has", addresses::client_port),
    rule("client-address", "members serve clients at the address that the inventory has", addresses::client_address),
    rule("members-started", "every member has started (a member has a name only after its start)", cluster::members_started),
    rule("members-unchanged", "the members are the same as before", cluster::members_unchanged),
    rule("no-learner", "no member is a learner", cluster::no_learner),
    rule("no-alarm", "there is no alarm", cluster::no_alarm),
    rule("no-corrupt", "there is no alarm except NOSPACE", cluster::no_corrupt),
    rule("no-new-alarm", "no alarm was raised during the change", cluster::no_new_alarm),
    rule("linearizable-read", "every member answers a linearizable read", cluster::linearizable_read),
    rule("quorum-now", "a majority of the voters is healthy", cluster::quorum_now),
    rule("quorum-after", "without the member being changed, the healthy voters are a majority", cluster::quorum_after),
    rule("small-cluster", "a cluster of one or two voters changes only if the outage is accepted", cluster::small_cluster),
    rule("caught-up", "every member has caught up with the leader", cluster::caught_up),
    rule("leader-off", "the member being changed is not the leader", cluster::leader_off),
    rule("clock", "clocks differ by less than a second", hosts::clock),
    rule("disk-room", "disks have enough free space", hosts::disk_room),
    rule("binary-verified", "the new etcd binary is there, with the right checksum", hosts::binary_verified),
    rule("strict-reconfig", "etcd checks membership changes", hosts::strict_reconfig),
    rule("unreachable-is-not-dead", "a member that others still reach is not replaced", hosts::unreachable_is_not_dead),
    rule("snapshot-verified", "a snapshot was taken within the last hour and verified page by page", data::snapshot_verified),
    rule("data-agrees", "all members have the same data, by etcd's hash (HashKV)", data::data_agrees),
    rule("versions-expected", "every member runs a version that this change expects", versions::versions_expected),
    rule("one-minor", "one minor version at a time", versions::one_minor),
    rule("forbidden-3.5.0", "never to 3.5.0, 3.5.1 or 3.5.2", versions::forbidden),
    rule("floor-3.5", "from 3.4 only to 3.5.26 or later", versions::floor_3_5),
    rule("floor-3.6", "from 3.5 or 3.7 only to 3.6.11 or later", versions::floor_3_6),
    rule("patch-3.5-first", "to 3.6 only from 3.5.32 or later", versions::patch_3_5_first),
    rule("patch-3.6-first", "to 3.7 only from 3.6.11 or later", versions::patch_3_6_first),
    rule("auth-3.4", "no rolling upgrade from 3.4 to 3.5 with authentication enabled", versions::auth),
    rule("cluster-version", "every member reports the cluster version of its binaries", versions::cluster_version),
    rule("storage-version", "from 3.6 on, the data on disk has the cluster's version", versions::storage_version),
    rule("downgrade-enabled", "down only while a member runs the old version, or after the downgrade is enabled in etcd", versions::downgrade_enabled),
    rule("way-back", "the cluster version is not newer than the version to roll back to", versions::way_back),
    rule("no-downgrade", "no upgrade while a downgrade is in progress", versions::no_downgrade),
    rule("patch-before-replace", "a 3.5 below 3.5.26 is upgraded before its members change, if that is possible", versions::patch_before_replace),
    rule("learners-only", "new members join as learners", changes::learners_only),
    rule("dead-goes-first", "a failed member is removed before another is added", changes::dead_goes_first),
    rule("as-decided", "a member to be removed is still in the state that the decision was based on", changes::as_decided),
    rule("live-goes-last", "a healthy member is removed only after another has replaced it", changes::live_goes_last),
];

/// Rules about the path to another version. They are checked once, before any member is changed: `no-v2-content` by
/// `etcd_v2_content` before the upgrade to 3.6, the others by `etcd_path`.
pub static WAY_RULES: &[(&str, &str)] = &[
    ("release-known", "every version on the path is in `etcd_releases`"),
    ("client-compat", "clients that the inventory names can work with every version on the path"),
    ("no-v2-content", "to 3.6 only without v2 API data on any member"),
];

/// The ids of the rules that count.
#[rustfmt::skip]
pub fn rules(profile: Profile, gate: Gate) -> &'static [&'static str] {
    use Gate::{After, Back, Before, Begin, Settled, Stop};
    match (profile, gate) {
        (Profile::Upgrade | Profile::Replace, Begin) => &["data-agrees"],
        (_, Begin) => &[],
        (Profile::Upgrade, Before) => &[
            "client-port", "client-address", "addresses-known",
            "reachable", "answers", "one-leader", "members-agree", "members-known", "members-started", "no-learner",
            "no-alarm", "linearizable-read", "caught-up", "quorum-after", "small-cluster", "versions-expected",
            "one-minor", "forbidden-3.5.0", "floor-3.5", "floor-3.6", "patch-3.5-first", "patch-3.6-first", "auth-3.4",
            "cluster-version", "storage-version", "downgrade-enabled", "no-downgrade", "strict-reconfig", "clock", "disk-room",
            "binary-verified", "snapshot-verified",
        ],
        (Profile::Restart, Before) => &[
            "client-port", "client-address",
            "reachable", "answers", "one-leader", "members-agree", "members-known", "members-started", "no-learner",
            "no-alarm", "linearizable-read", "caught-up", "quorum-after", "small-cluster", "strict-reconfig", "clock",
            "disk-room",
        ],
        (Profile::Replace, Before) => &[
            "addresses-known", "as-decided",
            "quorum-now", "one-leader", "members-agree", "no-learner", "no-corrupt", "quorum-after", "small-cluster",
            "unreachable-is-not-dead", "patch-before-replace", "strict-reconfig", "clock", "learners-only",
            "dead-goes-first", "live-goes-last", "snapshot-verified",
        ],
        (Profile::Nospace, Before) => &[
            "client-port", "client-address", "addresses-known",
            "reachable", "answers", "one-leader", "members-agree", "members-known", "members-started", "no-learner",
            "no-corrupt", "linearizable-read", "quorum-now", "disk-room",
        ],
        (Profile::Certificate, Before) => &["reachable", "clock"],
        (Profile::Upgrade | Profile::Restart, Stop) => &[
            "address-at-start",
            "one-leader", "no-alarm", "quorum-after", "small-cluster", "leader-off",
        ],
        (Profile::Replace, Stop) => &["as-decided", "quorum-after", "small-cluster", "leader-off"],
        (Profile::Nospace, Stop) => &["address-at-start", "quorum-after", "small-cluster"],
        (Profile::Certificate, Stop) => &["address-at-start", "reachable"],
        (Profile::Upgrade | Profile::Restart, After) => &[
            "addresses-known",
            "answers", "one-leader", "linearizable-read", "caught-up", "versions-expected", "members-unchanged",
            "no-new-alarm",
        ],
        (Profile::Replace, After) => &[
            "answers", "one-leader", "linearizable-read", "caught-up", "no-learner", "no-new-alarm",
        ],
        (Profile::Nospace, After) => &["answers", "one-leader", "linearizable-read", "members-unchanged", "no-corrupt"],
        (Profile::Certificate, After) => &["answers", "one-leader", "linearizable-read", "no-corrupt"],
        (Profile::Upgrade, Settled) => &[
            "addresses-known",
            "answers", "one-leader", "members-agree", "members-known", "no-alarm", "linearizable-read",
            "versions-expected", "cluster-version", "storage-version",
        ],
        (Profile::Restart | Profile::Replace, Settled) => &[
            "addresses-known",
            "answers", "one-leader", "members-agree", "members-known", "members-started", "no-learner", "no-alarm",
            "linearizable-read",
        ],
        // The alarm is disarmed once all members have given space back.
        (Profile::Nospace, Settled) => &[
            "answers", "one-leader", "members-agree", "members-known", "members-started", "no-learner", "no-corrupt",
            "linearizable-read",
        ],
        (Profile::Certificate, Settled) => &["answers", "one-leader", "members-agree", "linearizable-read"],
        (_, Back) => &["way-back"],
    }
}

/// What a restart of a member has to pass wherever it comes from. It starts with something new, of which etcd may die: one that died
/// of it is not followed by another.
pub const SPARED: &[&str] = &["answers", "quorum-after", "small-cluster"];

/// Asks these rules alone.
pub fn judge_those(ids: &[&str], gate: Gate, situation: &Situation<'_>) -> Verdict {
    judge_rules(switched_off().as_deref(), ids, gate, situation)
}

/// Asks all rules that count.
pub fn judge(profile: Profile, gate: Gate, situation: &Situation<'_>) -> Verdict {
    judge_without(switched_off().as_deref(), profile, gate, situation)
}

fn judge_without(off: Option<&str>, profile: Profile, gate: Gate, situation: &Situation<'_>) -> Verdict {
    judge_rules(off, rules(profile, gate), gate, situation)
}

fn judge_rules(off: Option<&str>, wanted: &[&str], gate: Gate, situation: &Situation<'_>) -> Verdict {
    let counting = RULES.iter().filter(|rule| wanted.contains(&rule.id) && Some(rule.id) != off);
    let findings = counting
        .map(|rule| Finding { rule: rule.id, answer: (rule.check)(situation, gate).of(situation.cluster) })
        .collect();
    Verdict { findings }
}

/// Whether a rule counts at all: none is off but for tests.
pub fn is_off(id: &str) -> bool {
    switched_off().is_some_and(|off| off == id)
}

fn switched_off() -> Option<String> {
    if cfg!(debug_assertions) { std::env::var("ETCDRUN_TEST_RULE_OFF").ok() } else { None }
}

impl Answer {
    fn holds(what: impl Into<String>) -> Self {
        Self::Holds { what: what.into() }
    }

    fn refused(what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self::Refused { what: what.into(), way_out: way_out.into() }
    }

    fn unknown(what: impl Into<String>) -> Self {
        Self::Unknown { what: what.into() }
    }

    /// With the cluster's name in the commands that it advises.
    fn of(self, cluster: &str) -> Self {
        match self {
            Self::Refused { what, way_out } => Self::Refused { what, way_out: for_cluster(&way_out, cluster) },
            other => other,
        }
    }
}

/// What rules advise, for a cluster of this name.
pub(super) fn for_cluster(way_out: &str, cluster: &str) -> String {
    way_out.replace(situation::CLUSTER, cluster)
}

impl Verdict {
    /// Whether one may go on.
    pub fn holds(&self) -> bool {
        self.findings.iter().all(|finding| matches!(finding.answer, Answer::Holds { .. }))
    }

    /// What does not hold, or is not known.
    pub fn against(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter().filter(|finding| !matches!(finding.answer, Answer::Holds { .. }))
    }

    /// What does not hold, for a person: a line each, with the rule's id and the way out.
    pub fn told(&self) -> String {
        let lines: Vec<String> = self.against().map(ToString::to_string).collect();
        lines.join("\n")
    }
}

impl std::fmt::Display for Finding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.answer {
            Answer::Holds { what } => write!(f, "{}: {what}", self.rule),
            Answer::Refused { what, way_out } => write!(f, "{}: {what}; {way_out}", self.rule),
            Answer::Unknown { what } => write!(f, "{}: not known: {what}", self.rule),
        }
    }
}
