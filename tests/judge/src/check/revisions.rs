//! Revisions count the writes: each write has its own, and who asks later never sees a smaller one.

use std::collections::{BTreeMap, HashMap};

use super::violation::{Violation, ViolationKind, seconds};
use crate::{
    history::History,
    record::{LeaseRecord, LeaseStep, Operation},
};

/// An acknowledged linearizable call and the revision of its answer.
#[derive(Clone, Copy)]
struct Stamp<'a> {
    epoch: u32,
    called: i64,
    returned: i64,
    revision: i64,
    is_write: bool,
    source: Source<'a>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Operation(&'a Operation),
    Lease(&'a LeaseRecord),
}

pub(super) fn check(history: &History) -> Vec<Violation> {
    let mut epochs: BTreeMap<u32, Vec<Stamp>> = BTreeMap::new();
    for stamp in stamps(history) {
        epochs.entry(stamp.epoch).or_default().push(stamp);
    }
    epochs.into_values().flat_map(|stamps| twice(&stamps).into_iter().chain(back(stamps))).collect()
}

fn stamps(history: &History) -> impl Iterator<Item = Stamp<'_>> {
    let operations = history.operations.iter().filter_map(|operation| {
        let (request, answer) = (&operation.request, operation.answer()?);
        Some(Stamp {
            epoch: request.epoch,
            called: request.called,
            returned: operation.returned,
            revision: answer.revision,
            is_write: answer.written,
            source: Source::Operation(operation),
        })
    });
    let leases = history.leases.iter().filter_map(|record| {
        let (revision, is_write) = match record.step {
            LeaseStep::Put { revision, .. } => (revision, true),
            LeaseStep::Read { revision, .. } => (revision, false),
            _ => return None,
        };
        let LeaseRecord { epoch, called, returned, .. } = *record;
        Some(Stamp { epoch, called, returned, revision, is_write, source: Source::Lease(record) })
    });
    operations.chain(leases)
}

/// Every acknowledged write changed one key in a transaction of its own.
fn twice(stamps: &[Stamp]) -> Vec<Violation> {
    let mut writes: HashMap<i64, Stamp> = HashMap::new();
    let mut violations = Vec::new();
    for stamp in stamps.iter().filter(|stamp| stamp.is_write) {
        if let Some(other) = writes.insert(stamp.revision, *stamp) {
            let sentence = format!("Two writes were acknowledged with the same revision {}.", stamp.revision);
            violations.push(violation(ViolationKind::RevisionTwice, sentence, [other, *stamp]));
        }
    }
    violations
}

/// Calls that do not overlap.
fn back(stamps: Vec<Stamp>) -> Vec<Violation> {
    let mut by_return = stamps.clone();
    by_return.sort_by_key(|stamp| stamp.returned);
    let mut by_call = stamps;
    by_call.sort_by_key(|stamp| stamp.called);
    let mut returned = by_return.into_iter().peekable();
    let mut highest: Option<Stamp> = None;
    let mut violations = Vec::new();
    for stamp in by_call {
        while let Some(before) = returned.next_if(|before| before.returned < stamp.called) {
            if highest.is_none_or(|highest| highest.revision < before.revision) {
                highest = Some(before);
            }
        }
        let Some(before) = highest else { continue };
        let is_back = stamp.revision < before.revision || (stamp.is_write && stamp.revision == before.revision);
        if is_back {
            let sentence = format!(
                "The revision went back: a call that ended at {} saw {}, and a {} that began at {} got {}.",
                seconds(before.returned),
                before.revision,
                if stamp.is_write { "write" } else { "read" },
                seconds(stamp.called),
                stamp.revision
            );
            violations.push(violation(ViolationKind::RevisionWentBack, sentence, [before, stamp]));
        }
    }
    violations
}

fn violation(kind: ViolationKind, sentence: String, stamps: [Stamp; 2]) -> Violation {
    let mut violation = Violation::new(kind, sentence).in_epoch(stamps[1].epoch);
    for stamp in stamps {
        violation = match stamp.source {
            Source::Operation(operation) => violation.at_key(&operation.request.key).with_operations([operation]),
            Source::Lease(record) => violation.at_key(&record.key).with_leases([record]),
        };
    }
    violation
}
