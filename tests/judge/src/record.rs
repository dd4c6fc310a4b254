//! What is written into a history.

use serde::{Deserialize, Serialize};

use crate::settings::Settings;

/// One line of `history.jsonl`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub(crate) enum Record {
    Start(Start),
    /// Written before the request leaves, so that a history that breaks off has no value that nobody wrote.
    Called(Request),
    Returned {
        id: u64,
        returned: i64,
        outcome: Outcome,
    },
    Watch(WatchRecord),
    Lease(LeaseRecord),
    Members(MembersRecord),
    /// How many lists of members were seen until the end of the history.
    Sampled {
        at: i64,
        count: u64,
    },
    Epoch(Epoch),
    Paused {
        at: i64,
    },
    Resumed {
        at: i64,
    },
    End(End),
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Start {
    /// Begins every value of this history, so that those of an earlier one are told apart.
    pub run: String,
    pub unix_milliseconds: i64,
    pub settings: Settings,
}

/// What a client asked for. Times are nanoseconds since the start of the history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Request {
    pub id: u64,
    pub client: u32,
    pub epoch: u32,
    pub endpoint: String,
    pub key: String,
    pub kind: Kind,
    pub called: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    Get,
    Put {
        value: String,
    },
    /// Expects a value, or that the key is absent.
    CompareAndSwap {
        expected: Option<String>,
        value: String,
    },
    Delete,
}

impl Kind {
    pub fn name(&self) -> &'static str {
        match self {
            Kind::Get => "get",
            Kind::Put { .. } => "put",
            Kind::CompareAndSwap { .. } => "compare-and-swap",
            Kind::Delete => "delete",
        }
    }

    /// The value that the key has if the request takes effect.
    pub fn value(&self) -> Option<&str> {
        match self {
            Kind::Put { value } | Kind::CompareAndSwap { value, .. } => Some(value),
            Kind::Get | Kind::Delete => None,
        }
    }

    pub fn is_write(&self) -> bool {
        *self != Kind::Get
    }
}

/// A request and what became of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Operation {
    pub request: Request,
    pub returned: i64,
    pub outcome: Outcome,
}

impl Operation {
    pub fn answer(&self) -> Option<&Answer> {
        match &self.outcome {
            Outcome::Acknowledged(answer) => Some(answer),
            Outcome::Failed { .. } | Outcome::Unknown { .. } => None,
        }
    }

    /// What an acknowledged operation found in the key.
    pub fn seen(&self) -> Option<&Version> {
        self.answer()?.seen.as_ref()
    }
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Acknowledged(Answer),
    /// It certainly had no effect.
    Failed {
        reason: String,
    },
    /// It may have had its effect, or have it later, or never.
    Unknown {
        reason: String,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Answer {
    /// The revision of the store when the request was executed; for a write that had an effect, its own.
    pub revision: i64,
    /// What the key held immediately before.
    pub seen: Option<Version>,
    /// Whether the request changed the key.
    pub written: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    pub value: String,
    pub mod_revision: i64,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WatchRecord {
    pub watcher: u32,
    pub epoch: u32,
    pub endpoint: String,
    pub at: i64,
    pub what: Watched,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Watched {
    /// All events from this revision on were asked for.
    Began {
        from: i64,
    },
    /// Without a value, the key was deleted.
    Event {
        revision: i64,
        key: String,
        value: Option<String>,
    },
    /// The server says that no event up to this revision is to come.
    Progress {
        revision: i64,
    },
    /// What was asked for is no longer there; the watch continues at the revision up to which the store was compacted.
    Compacted {
        asked: i64,
        compact_revision: i64,
    },
    Ended {
        reason: String,
    },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LeaseRecord {
    pub client: u32,
    pub epoch: u32,
    pub endpoint: String,
    pub lease: i64,
    pub key: String,
    pub called: i64,
    pub returned: i64,
    pub step: LeaseStep,
}

/// Acknowledged, except where it says otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LeaseStep {
    Granted {
        ttl_seconds: i64,
    },
    Put {
        revision: i64,
        raft_term: u64,
    },
    Kept,
    /// It is no longer kept alive, and shall expire.
    Left,
    /// Written before the request leaves: from here on, the key may be gone.
    Revoking,
    Revoked,
    Read {
        present: bool,
        revision: i64,
        raft_term: u64,
    },
}

/// A list of members that is another one than the list before, or the first one of its epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MembersRecord {
    pub epoch: u32,
    pub endpoint: String,
    /// How many lists were seen in this history, with this one.
    pub number: u64,
    /// When the list before was seen for the last time: the end of the last answer. None at the start of an epoch.
    pub previous: Option<i64>,
    pub called: i64,
    pub returned: i64,
    /// In the order of their ids.
    pub members: Vec<Member>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Member {
    pub id: u64,
    /// Empty as long as it has not started.
    pub name: String,
    pub is_learner: bool,
    pub peer_urls: Vec<String>,
}

/// From here on, keys may have older values.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Epoch {
    pub number: u32,
    pub at: i64,
    pub reason: String,
}

/// A time in which no client did anything.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Pause {
    pub from: i64,
    pub until: Option<i64>,
}

/// How the history ended.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct End {
    pub at: i64,
    /// Keys that could not be read at the end.
    pub unread: Vec<String>,
    /// Watchers that had not seen the last acknowledged write at the end.
    pub watchers_behind: Vec<u32>,
}
