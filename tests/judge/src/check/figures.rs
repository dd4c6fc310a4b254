//! How much was judged, so that a verdict without violations means something.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{
    availability::{self, Gaps},
    history::History,
    record::{Outcome, Watched},
};

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Figures {
    pub seconds: f64,
    pub epochs: usize,
    /// By kind: get, put, compare-and-swap, delete.
    pub operations: BTreeMap<String, Count>,
    pub acknowledged: usize,
    /// Requests whose outcome nobody knows.
    pub unknown: usize,
    pub highest_revision: i64,
    /// Parts of the history of a key for which an order of the calls was searched.
    pub searches: usize,
    /// How many events each watcher saw.
    pub events: BTreeMap<u32, usize>,
    /// Acknowledged writes that a watcher had to see, over all watchers.
    pub events_expected: usize,
    /// Gaps in watches that a compaction explains.
    pub compacted: usize,
    pub leases: LeaseFigures,
    /// Lists of members that were seen.
    #[serde(default)]
    pub member_samples: u64,
    /// How often a list was another one than the list before it in its epoch. A list that came back counts, too.
    #[serde(default)]
    pub member_changes: usize,
    pub gaps: Gaps,
    /// Whether the history has its end, with all last reads and all last events.
    pub complete: bool,
    pub unread: Vec<String>,
    pub watchers_behind: Vec<u32>,
    /// Violations that are not listed because there are too many of their kind.
    pub left_out: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Count {
    pub acknowledged: usize,
    pub failed: usize,
    pub unknown: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseFigures {
    pub granted: usize,
    /// Reads for which the key had to be there.
    pub reads_while_kept: usize,
    /// Reads for which the key had to be gone.
    pub reads_after_revoke: usize,
    /// Leases that were left to expire and whose key was seen to be gone.
    pub expired: usize,
}

pub(super) fn of(history: &History) -> Figures {
    let mut figures = Figures {
        seconds: history.until as f64 / 1e9,
        epochs: history.epochs.len() + 1,
        member_samples: history.member_samples,
        member_changes: history.members.iter().filter(|record| record.previous.is_some()).count(),
        gaps: availability::of(history),
        ..Figures::default()
    };
    for operation in &history.operations {
        let count = figures.operations.entry(operation.request.kind.name().to_owned()).or_default();
        match &operation.outcome {
            Outcome::Acknowledged(answer) => {
                count.acknowledged += 1;
                figures.acknowledged += 1;
                figures.highest_revision = figures.highest_revision.max(answer.revision);
            }
            Outcome::Failed { .. } => count.failed += 1,
            Outcome::Unknown { .. } => {
                count.unknown += 1;
                figures.unknown += 1;
            }
        }
    }
    for record in &history.watches {
        match record.what {
            Watched::Event { .. } => *figures.events.entry(record.watcher).or_default() += 1,
            Watched::Compacted { .. } => figures.compacted += 1,
            Watched::Began { .. } | Watched::Progress { .. } | Watched::Ended { .. } => {}
        }
    }
    if let Some(end) = &history.end {
        (figures.unread, figures.watchers_behind) = (end.unread.clone(), end.watchers_behind.clone());
        figures.complete = end.unread.is_empty() && end.watchers_behind.is_empty();
    }
    figures
}
