//! Every value that anybody sees was written by somebody, once, at one revision. No answer contradicts its own request.

use std::collections::HashMap;

use super::violation::{Violation, ViolationKind, describe, seconds};
use crate::{
    history::History,
    record::{Kind, Operation, Outcome, WatchRecord, Watched},
};

/// Which request wrote a value.
pub(super) struct Writes<'a> {
    run: &'a str,
    by_value: HashMap<&'a str, &'a Operation>,
}

impl<'a> Writes<'a> {
    pub(super) fn of(history: &'a History) -> Self {
        let operations = history.operations.iter();
        let by_value = operations.filter_map(|operation| Some((operation.request.kind.value()?, operation))).collect();
        Self { run: &history.start.run, by_value }
    }

    /// A value that was there before this history: keys may begin an epoch with it.
    fn is_foreign(&self, value: &str) -> bool {
        !value.strip_prefix(self.run).is_some_and(|rest| rest.starts_with('.'))
    }
}

pub(super) fn check(history: &History, writes: &Writes) -> Vec<Violation> {
    let sightings = sightings(history);
    let mut violations: Vec<Violation> = history.operations.iter().filter_map(impossible).collect();
    violations.extend(sightings.iter().filter_map(|sighting| out_of_nowhere(sighting, writes)));
    violations.extend(at_two_revisions(&sightings, writes));
    violations
}

/// Somebody saw a value.
struct Sighting<'a> {
    epoch: u32,
    key: &'a str,
    value: &'a str,
    revision: i64,
    at: i64,
    source: Source<'a>,
}

#[derive(Clone, Copy)]
enum Source<'a> {
    Operation(&'a Operation),
    Event(&'a WatchRecord),
}

impl Sighting<'_> {
    fn violation(&self, kind: ViolationKind, sentence: String) -> Violation {
        let violation = Violation::new(kind, sentence).in_epoch(self.epoch).at_key(self.key);
        match self.source {
            Source::Operation(operation) => violation.with_operations([operation]),
            Source::Event(record) => violation.with_watches([record]),
        }
    }
}

fn sightings(history: &History) -> Vec<Sighting<'_>> {
    let operations = history.operations.iter().filter_map(|operation| {
        let (request, version) = (&operation.request, operation.seen()?);
        Some(Sighting {
            epoch: request.epoch,
            key: &request.key,
            value: &version.value,
            revision: version.mod_revision,
            at: operation.returned,
            source: Source::Operation(operation),
        })
    });
    let events = history.watches.iter().filter_map(|record| match &record.what {
        Watched::Event { revision, key, value: Some(value) } => Some(Sighting {
            epoch: record.epoch,
            key,
            value,
            revision: *revision,
            at: record.at,
            source: Source::Event(record),
        }),
        _ => None,
    });
    operations.chain(events).collect()
}

fn out_of_nowhere(sighting: &Sighting, writes: &Writes) -> Option<Violation> {
    let Sighting { key, value, at, .. } = sighting;
    let kind = match sighting.source {
        Source::Operation(_) => ViolationKind::ValueNobodyWrote,
        Source::Event(_) => ViolationKind::EventNobodyWrote,
    };
    let is_event = kind == ViolationKind::EventNobodyWrote;
    let Some(write) = writes.by_value.get(value) else {
        let is_bad = is_event || !writes.is_foreign(value);
        let sentence = || format!("`{value}` was seen in {key} at {}, but nobody wrote it.", seconds(*at));
        return is_bad.then(|| sighting.violation(kind, sentence()));
    };
    let because = match &write.outcome {
        _ if write.request.key != *key => format!("it was written to {}", write.request.key),
        _ if write.request.called > *at => format!("it was only written at {}", seconds(write.request.called)),
        Outcome::Failed { reason } => format!("its write was refused ({reason})"),
        Outcome::Acknowledged(answer) if !answer.written => "its write had no effect".to_owned(),
        Outcome::Acknowledged(_) | Outcome::Unknown { .. } => return None,
    };
    let sentence = format!("`{value}` was seen in {key} at {}, but {because}.", seconds(*at));
    Some(sighting.violation(kind, sentence).with_operations([*write]))
}

/// Also across epochs: what an older state brings back has its old revision.
fn at_two_revisions(sightings: &[Sighting], writes: &Writes) -> Vec<Violation> {
    let mut revisions: HashMap<&str, i64> = HashMap::new();
    let acknowledged = writes.by_value.iter().filter_map(|(value, write)| {
        let answer = write.answer()?;
        answer.written.then_some((*value, answer.revision))
    });
    revisions.extend(acknowledged);
    let mut violations = Vec::new();
    for sighting in sightings {
        let Sighting { key, value, revision, at, .. } = sighting;
        let first = *revisions.entry(value).or_insert(*revision);
        if first != *revision {
            let sentence = format!(
                "`{value}` was seen in {key} at {} as of revision {revision}, but it was written once, at revision {first}.",
                seconds(*at)
            );
            let write = writes.by_value.get(value).copied();
            violations.push(sighting.violation(ViolationKind::ValueAtTwoRevisions, sentence).with_operations(write));
        }
    }
    violations
}

fn impossible(operation: &Operation) -> Option<Violation> {
    let answer = operation.answer()?;
    let seen = answer.seen.as_ref();
    let value = seen.map(|version| version.value.as_str());
    let because = match &operation.request.kind {
        _ if seen.is_some_and(|version| version.mod_revision > answer.revision) => {
            "it saw a later revision than its own"
        }
        _ if answer.written && seen.is_some_and(|version| version.mod_revision == answer.revision) => {
            "it saw its own revision before it wrote"
        }
        Kind::CompareAndSwap { expected, .. } if answer.written && expected.as_deref() != value => {
            "it wrote though the value was another one"
        }
        Kind::CompareAndSwap { expected, .. } if !answer.written && expected.as_deref() == value => {
            "it did not write though the value was the expected one"
        }
        Kind::Delete if answer.written != seen.is_some() => "what it deleted is not what it saw",
        Kind::Get if answer.written => "a get does not write",
        _ => return None,
    };
    let sentence = format!("An answer is impossible: {}; {because}.", describe(operation));
    let violation = Violation::new(ViolationKind::ImpossibleAnswer, sentence);
    Some(violation.in_epoch(operation.request.epoch).at_key(&operation.request.key).with_operations([operation]))
}
