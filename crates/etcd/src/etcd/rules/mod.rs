//! The rules that keep a cluster serving while its members are changed, each under an id that stays.
//!
//! ```text
//! observe ──> Situation ──> judge(profile, gate) ──> Verdict: what holds, what does not, and the way out
//! ```
//!
//! Pure: a rule looks at what was observed and at what is intended, and reaches no host. A profile is a kind of change: "all are
//! healthy, and no alarm" is right for an upgrade, and would forbid to fix what is broken. A gate is when rules are asked.
//! `rows` has all rules, each with the profiles and gates that ask it. What a rule needs to know and was not looked at counts
//! against it, except in a plan.
//!
//! For tests only, and only in debug builds: `ETCDRUN_TEST_OFF=ID` switches one rule off.

mod addresses;
mod changes;
mod cluster;
mod data;
mod hosts;
mod rows;
mod situation;
#[cfg(test)]
mod tests;
mod versions;

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use etcdrun_base::mutant::is_off;
use etcdrun_base::mutant::switched_off;

pub use addresses::is_at;
pub use data::SNAPSHOT_AGE;
pub use rows::{CLIENT_COMPAT, NO_V2_CONTENT, RELEASE_KNOWN, RULES, Rule, Waiting};
pub use situation::{Consent, Decided, HostSeen, MemberChange, ReleaseSeen, Room, Situation, SnapshotSeen, Step};
pub use versions::{FLOOR_3_5, FLOOR_3_6, RECOMMENDED_3_5};
pub(super) use versions::{auth_refusal, step_refusal};

/// A kind of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// Another version, up or down.
    Upgrade,
    /// A restart: settings, keys, a reboot.
    Restart,
    /// One member replaces another.
    Replace,
    /// The quota is used up.
    Nospace,
    /// Certificates have expired.
    Certificate,
}

impl Profile {
    pub const ALL: [Self; 5] = [Self::Upgrade, Self::Restart, Self::Replace, Self::Nospace, Self::Certificate];
}

/// When rules are checked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Once, before the first turn: the data of all members is compared, for which each member reads its whole database.
    Begin,
    /// Before a member is changed.
    #[default]
    Before,
    /// Right before it is stopped.
    Stop,
    /// After it has started again.
    After,
    /// After all members have had their turn.
    Settled,
    /// Before a member whose turn has failed is rolled back.
    Back,
}

impl Gate {
    pub const ALL: [Self; 6] = [Self::Begin, Self::Before, Self::Stop, Self::After, Self::Settled, Self::Back];
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
    #[serde(skip)]
    pub waiting: Waiting,
    /// Whether an accepted outage would set the rule aside.
    #[serde(skip)]
    pub about_outage: bool,
}

/// What all rules of a gate say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    pub findings: Vec<Finding>,
}

/// Asks what a restart of a member has to pass wherever it comes from.
pub fn judge_restart(situation: &Situation<'_>) -> Verdict {
    judge_where(switched_off().as_deref(), |rule| rule.at_every_restart, Gate::Stop, situation)
}

/// Asks all rules that count.
pub fn judge(profile: Profile, gate: Gate, situation: &Situation<'_>) -> Verdict {
    judge_without(switched_off().as_deref(), profile, gate, situation)
}

fn judge_without(off: Option<&str>, profile: Profile, gate: Gate, situation: &Situation<'_>) -> Verdict {
    judge_where(off, |rule| rule.is_asked(profile, gate), gate, situation)
}

fn judge_where(off: Option<&str>, is_asked: impl Fn(&Rule) -> bool, gate: Gate, situation: &Situation<'_>) -> Verdict {
    let asked = RULES.iter().filter(|rule| is_asked(rule) && Some(rule.id) != off);
    let findings = asked
        .map(|rule| Finding {
            rule: rule.id,
            about_outage: rule.about_outage,
            answer: (rule.check)(situation, gate).of(situation.cluster),
            waiting: rule.waiting,
        })
        .collect();
    Verdict { findings }
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

impl Finding {
    /// Whether this may come to hold at this gate by waiting longer. What is not known does not become known.
    pub fn may_change(&self, gate: Gate, waited: Duration) -> bool {
        !matches!(self.answer, Answer::Unknown { .. }) && self.waiting.helps(gate, waited)
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
