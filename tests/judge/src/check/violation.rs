//! A promise that was not kept.

use serde::{Deserialize, Serialize};

use crate::record::{Kind, LeaseRecord, MembersRecord, Operation, Version, WatchRecord};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ViolationKind {
    /// No order of the calls explains the answers.
    NotLinearizable,
    /// The search for an order took too long. It is no success.
    Undecided,
    /// An answer contradicts its own request.
    ImpossibleAnswer,
    ValueNobodyWrote,
    ValueAtTwoRevisions,
    RevisionTwice,
    RevisionWentBack,
    WatchOutOfOrder,
    WatchDuplicate,
    WatchGap,
    EventNobodyWrote,
    WatchersDisagree,
    LeaseKeyVanished,
    /// The same, but there was a new leader since the key was put. etcd is known for it: a leader that was stopped for a while may
    /// revoke leases that the new one keeps alive (etcd issue 15247).
    LeaseKeyVanishedAfterLeaderChange,
    LeaseKeyAfterRevoke,
    LeaseKeyOutlivedLease,
    HashesDiffer,
    /// The members did not answer, or not about the same data. It is no success.
    HashesNotCompared,
    /// Two voters came or went at once, or one came for another.
    VotersNotOneByOne,
    /// A member had a vote before it could have caught up.
    VoterWasNoLearner,
    TwoLearners,
}

/// Times are nanoseconds since the start of the history.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Violation {
    pub kind: ViolationKind,
    pub sentence: String,
    pub epoch: Option<u32>,
    pub key: Option<String>,
    pub from: i64,
    pub until: i64,
    pub operations: Vec<Operation>,
    pub watches: Vec<WatchRecord>,
    pub leases: Vec<LeaseRecord>,
    #[serde(default)]
    pub members: Vec<MembersRecord>,
}

impl Violation {
    pub(crate) fn new(kind: ViolationKind, sentence: String) -> Self {
        let (operations, watches, leases, members) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        Self { kind, sentence, epoch: None, key: None, from: 0, until: 0, operations, watches, leases, members }
    }

    pub(super) fn in_epoch(mut self, epoch: u32) -> Self {
        self.epoch = Some(epoch);
        self
    }

    pub(super) fn at_key(mut self, key: &str) -> Self {
        self.key = Some(key.to_owned());
        self
    }

    pub(super) fn with_operations<'a>(mut self, operations: impl IntoIterator<Item = &'a Operation>) -> Self {
        for operation in operations {
            self.include(operation.request.called, operation.returned);
            self.operations.push(operation.clone());
        }
        self
    }

    pub(super) fn with_watches<'a>(mut self, records: impl IntoIterator<Item = &'a WatchRecord>) -> Self {
        for record in records {
            self.include(record.at, record.at);
            self.watches.push(record.clone());
        }
        self
    }

    pub(super) fn with_leases<'a>(mut self, records: impl IntoIterator<Item = &'a LeaseRecord>) -> Self {
        for record in records {
            self.include(record.called, record.returned);
            self.leases.push(record.clone());
        }
        self
    }

    pub(super) fn with_members<'a>(mut self, records: impl IntoIterator<Item = &'a MembersRecord>) -> Self {
        for record in records {
            self.include(record.called, record.returned);
            self.members.push(record.clone());
        }
        self
    }

    fn include(&mut self, from: i64, until: i64) {
        let is_first =
            self.operations.is_empty() && self.watches.is_empty() && self.leases.is_empty() && self.members.is_empty();
        self.from = if is_first { from } else { self.from.min(from) };
        self.until = self.until.max(until);
    }
}

/// A time as people read it.
pub(super) fn seconds(at: i64) -> String {
    format!("{:.3} s", at as f64 / 1e9)
}

pub(super) fn describe_version(version: Option<&Version>) -> String {
    match version {
        Some(Version { value, mod_revision }) => format!("`{value}` of revision {mod_revision}"),
        None => "no value".to_owned(),
    }
}

/// An acknowledged operation in a few words.
pub(super) fn describe(operation: &Operation) -> String {
    let request = &operation.request;
    let mut text = match &request.kind {
        Kind::Get => "the get".to_owned(),
        Kind::Delete => "the delete".to_owned(),
        Kind::Put { value } => format!("the put of `{value}`"),
        Kind::CompareAndSwap { expected: Some(expected), value } => format!("the swap of `{expected}` for `{value}`"),
        Kind::CompareAndSwap { expected: None, value } => format!("the creation of `{value}`"),
    };
    text += &format!(
        " by client {} through {} from {} to {}",
        request.client,
        request.endpoint,
        seconds(request.called),
        seconds(operation.returned)
    );
    if let Some(answer) = operation.answer() {
        let effect = if answer.written { "and wrote" } else { "and wrote nothing" };
        let seen = describe_version(answer.seen.as_ref());
        text += &format!(" (it saw {seen}, {effect}, at revision {})", answer.revision);
    }
    text
}
