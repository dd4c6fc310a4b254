//! What rules look at.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{agree::Agreement, observe::Observation},
    Answer,
};
use crate::model::Version;

/// A cluster as it was seen, and what is about to happen to it.
#[derive(Clone, Copy, Debug)]
pub struct Situation<'a> {
    /// The cluster's name; it takes the place of `CLUSTER` in what rules advise.
    pub cluster: &'a str,
    /// The command line that is at work, if it is known, so that advice can repeat it.
    pub command: &'a str,
    /// The members that the inventory has.
    pub members: &'a [String],
    /// Where the inventory says that members reach each other, by name; empty where it is not known.
    pub peers: &'a [(String, String)],
    /// Where the inventory says that clients are served; for the look at hosts.
    pub client_port: Option<u16>,
    pub now: &'a Observation,
    /// The look before the member in turn was touched; for the gates behind that.
    pub before: Option<&'a Observation>,
    /// The member in turn.
    pub target: Option<&'a str>,
    /// Others that go down with it, because they are on the same machine.
    pub along: &'a [String],
    /// The leader's index (`Observation::mark`) from a look before `now`.
    pub mark: Option<u64>,
    /// Which versions this goes from and to.
    pub step: Option<Step>,
    /// What was seen on the hosts by SSH.
    pub hosts: &'a [HostSeen],
    /// The last snapshot.
    pub snapshot: Option<SnapshotSeen>,
    /// What the members calculate of their data.
    pub data: Option<&'a Agreement>,
    /// What is to happen to the list of members.
    pub change: Option<MemberChange>,
    /// What the member in turn was found to be when this was decided.
    pub decided: Option<Decided>,
    /// How many voters there were then.
    pub voters_then: Option<usize>,
    pub consent: Consent,
    /// Nothing is done yet: what is not known is said, and does not count against it.
    pub planning: bool,
}

/// One hop: from what the oldest member (or, downwards, the newest) runs to what all of them will.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    pub from: Version,
    pub to: Version,
}

/// What the operator has agreed to, in so many words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Consent {
    /// The cluster may stop answering.
    pub outage: bool,
    /// From 3.4 to 3.5 although authentication is on: all members are stopped, or it is switched off for the hop.
    pub auth_hop: bool,
    /// No snapshot is taken.
    pub no_snapshot: bool,
    /// The guest of the member in turn is powered off before it is taken out.
    pub fenced: bool,
}

/// What was seen on a member's host.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSeen {
    pub name: String,
    /// Why SSH does not get there, if it does not.
    pub unreachable: Option<String>,
    /// Whether the member answers through the host of another one.
    pub answers_others: Option<bool>,
    /// How far its clock is ahead of ours, in milliseconds, and how far off that may be.
    pub clock: Option<(i64, u64)>,
    pub rooms: Vec<Room>,
    /// The server that is to run next.
    pub release: Option<ReleaseSeen>,
    /// Whether the server that runs checks changes of its members.
    pub strict_reconfig: Option<bool>,
    /// No server runs there, and none is about to start.
    pub is_stopped: bool,
    /// Where it listens for other members once it starts again, as its settings on the disk say.
    pub next_peers: Option<Vec<String>>,
    /// Where the server that runs listens for clients.
    pub client_urls: Vec<String>,
    /// Members to whose peer port it cannot open a new connection, as far as the member being changed is at one end.
    pub unreached: Vec<String>,
}

impl HostSeen {
    /// Neither SSH nor etcd answers there.
    pub(super) fn is_off(&self) -> bool {
        self.unreachable.is_some() && self.answers_others == Some(false)
    }
}

/// A file system, and what is going to be put there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Room {
    pub path: String,
    pub free: u64,
    pub needed: u64,
    /// What for: `a defragmentation`.
    pub what: String,
}

/// A server on a host's disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseSeen {
    pub path: String,
    /// Nothing if there is no such file.
    pub sha256: Option<String>,
    pub wanted: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SnapshotSeen {
    pub size: u64,
    /// The sum at its end is that of what is before it, and each of its pages is what it should be.
    pub sum_matches: bool,
    pub age: Option<Duration>,
}

/// A membership change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MemberChange {
    /// A learner is added.
    #[serde(rename = "add")]
    AddLearner,
    #[serde(skip)]
    AddVoter,
    #[serde(skip)]
    Promote,
    /// The member being changed is removed, to be replaced.
    Remove,
    /// The member being changed is removed for good.
    Shrink,
    /// The member being changed is removed, and another has replaced it.
    #[serde(skip)]
    RemoveReplaced,
}

impl MemberChange {
    pub fn removes(self) -> bool {
        matches!(self, Self::Remove | Self::Shrink | Self::RemoveReplaced)
    }
}

/// What a member was found to be when it was decided that it goes. Hours may have passed since.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Decided {
    /// A voter that does not serve.
    Dead,
    /// A voter that runs, on damaged data.
    Corrupt,
    /// Not a voter any more.
    Gone,
}

/// Stands for the cluster's name in what rules advise.
pub(super) const CLUSTER: &str = "CLUSTER";

impl<'a> Situation<'a> {
    pub fn new(members: &'a [String], now: &'a Observation) -> Self {
        Self {
            cluster: CLUSTER,
            command: "",
            members,
            peers: &[],
            client_port: None,
            now,
            before: None,
            target: None,
            along: &[],
            mark: None,
            step: None,
            hosts: &[],
            snapshot: None,
            data: None,
            change: None,
            decided: None,
            voters_then: None,
            consent: Consent::default(),
            planning: false,
        }
    }

    /// Nobody looked. In a plan that is no fault.
    pub(super) fn unknown(&self, what: impl Into<String>) -> Answer {
        let what = what.into();
        if self.planning { Answer::holds(format!("unknown: {what}")) } else { Answer::unknown(what) }
    }

    /// The command line once more, with the operator's word that the cluster may stop answering.
    pub(super) fn with_outage_allowed(&self) -> String {
        const VARIABLE: &str = "-e rollout_allow_outage=true";
        let words: Vec<&str> = self.command.split(' ').collect();
        let has_flag = matches!(words.get(1), Some(&("member" | "drain" | "undrain" | "certs")));
        let takes_variable = matches!(words.get(1), Some(&"playbook")) && !words.contains(&"--plan");
        match self.command {
            command if has_flag => format!("run `{command} --allow-outage`"),
            command if takes_variable => format!("run `{command} {VARIABLE}`"),
            _ => format!("run the playbook with `{VARIABLE}`, or the verb with `--allow-outage`"),
        }
    }

    /// Whether this is the member in turn, or goes down with it.
    pub(super) fn is_target(&self, name: &str) -> bool {
        self.target == Some(name) || self.along.iter().any(|other| other == name)
    }

    /// Whether no server runs where the member in turn is, and those that go down with it. Then nothing more goes down, and what
    /// was begun should come to its end. One that is taken out of the list counts all the same. Where the outage is accepted, a
    /// machine that is off counts too: the turn itself has switched it off.
    pub(super) fn is_stopped_already(&self) -> bool {
        let is_down = |host: &HostSeen| host.is_stopped || (self.consent.outage && host.is_off());
        let stopped = |name: &str| self.hosts.iter().any(|host| host.name == name && is_down(host));
        let mut going = self.target.into_iter().chain(self.along.iter().map(String::as_str));
        self.change.is_none() && self.target.is_some() && going.all(stopped)
    }

    /// The member in turn, and those that go down with it.
    pub(super) fn going(&self) -> Option<String> {
        let names = self.target.into_iter().chain(self.along.iter().map(String::as_str));
        let names: Vec<&str> = names.collect();
        (!names.is_empty()).then(|| names.join(" and "))
    }
}
