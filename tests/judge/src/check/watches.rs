//! A watcher sees every write in the range that it covered, in order, once, and nothing else; and so do all watchers.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    ops::RangeInclusive,
};

use super::{
    figures::Figures,
    violation::{Violation, ViolationKind, describe, seconds},
};
use crate::{
    history::History,
    record::{Kind, Operation, Outcome, WatchRecord, Watched},
};

pub(super) fn check(history: &History, figures: &mut Figures) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut views: BTreeMap<(u32, u32), View> = BTreeMap::new();
    for record in &history.watches {
        let view = views.entry((record.epoch, record.watcher)).or_default();
        violations.extend(view.add(record));
    }
    let mut writes: BTreeMap<(u32, i64), &Operation> = BTreeMap::new();
    for operation in &history.operations {
        if let Some(answer) = operation.answer().filter(|answer| answer.written) {
            writes.insert((operation.request.epoch, answer.revision), operation);
        }
    }
    for ((epoch, watcher), view) in &mut views {
        view.close();
        violations.extend(missing(*epoch, *watcher, view, &writes, figures));
    }
    violations.extend(deletions(history, &writes));
    let views: Vec<((u32, u32), View)> = views.into_iter().collect();
    for (index, (one, first)) in views.iter().enumerate() {
        let others = views[index + 1..].iter().filter(|(other, _)| other.0 == one.0);
        violations.extend(others.filter_map(|(other, second)| disagreement(*one, first, *other, second)));
    }
    violations
}

/// What one watcher saw in one epoch.
#[derive(Default)]
struct View<'a> {
    /// Ranges of revisions in which it must have seen everything.
    covered: Vec<RangeInclusive<i64>>,
    events: BTreeMap<(i64, &'a str), &'a WatchRecord>,
    /// The range that grows at this time: its start, and up to where everything was seen.
    current: Option<(i64, i64)>,
    last: Option<&'a WatchRecord>,
    last_revision: i64,
    /// No event up to this revision is to come.
    promised: i64,
}

impl<'a> View<'a> {
    fn add(&mut self, record: &'a WatchRecord) -> Option<Violation> {
        match &record.what {
            Watched::Began { from } => {
                if self.current.is_none_or(|(_, until)| until + 1 != *from) {
                    self.close();
                    self.current = Some((*from, *from - 1));
                }
                None
            }
            Watched::Event { revision, key, .. } => self.add_event(record, *revision, key),
            Watched::Progress { revision } => {
                self.promised = self.promised.max(*revision);
                self.cover(*revision);
                None
            }
            Watched::Compacted { .. } => {
                self.close();
                None
            }
            Watched::Ended { .. } => None,
        }
    }

    fn add_event(&mut self, record: &'a WatchRecord, revision: i64, key: &'a str) -> Option<Violation> {
        let what = format!("Watcher {} got an event of revision {revision} on {key}", record.watcher);
        let at = seconds(record.at);
        let asked = self.current.map_or(0, |(from, _)| from);
        let broken = if self.events.contains_key(&(revision, key)) {
            Some((ViolationKind::WatchDuplicate, format!("{what} for the second time at {at}.")))
        } else if revision < self.last_revision {
            let before = format!("after one of revision {}", self.last_revision);
            Some((ViolationKind::WatchOutOfOrder, format!("{what} at {at} {before}.")))
        } else if revision <= self.promised {
            let before = format!("after all events up to {} had been promised to be there", self.promised);
            Some((ViolationKind::WatchOutOfOrder, format!("{what} at {at} {before}.")))
        } else if revision < asked {
            let before = format!("though it had asked for those from {asked} on");
            Some((ViolationKind::WatchOutOfOrder, format!("{what} at {at} {before}.")))
        } else {
            None
        };
        let violation = broken.map(|(kind, sentence)| {
            let violation = Violation::new(kind, sentence).in_epoch(record.epoch).at_key(key);
            violation.with_watches(self.last.into_iter().chain([record]))
        });
        self.events.entry((revision, key)).or_insert(record);
        self.last = Some(record);
        self.last_revision = self.last_revision.max(revision);
        self.cover(revision);
        violation
    }

    fn cover(&mut self, revision: i64) {
        if let Some((_, until)) = &mut self.current {
            *until = revision.max(*until);
        }
    }

    fn close(&mut self) {
        if let Some((from, until)) = self.current.take()
            && from <= until
        {
            self.covered.push(from..=until);
        }
    }

    fn covers(&self, revision: i64) -> bool {
        self.covered.iter().any(|range| range.contains(&revision))
    }

    /// The first event that the other one has not, or has with another value, though it covered its revision.
    fn difference(&self, other: &View) -> Option<(i64, &'a str)> {
        let is_different = |(revision, key): &(i64, &str)| {
            let is_common = self.covers(*revision) && other.covers(*revision);
            is_common && self.value(*revision, key) != other.value(*revision, key)
        };
        self.events.keys().copied().find(is_different)
    }

    /// Without a value, a deletion.
    fn value(&self, revision: i64, key: &str) -> Option<Option<&str>> {
        match &self.events.get(&(revision, key))?.what {
            Watched::Event { value, .. } => Some(value.as_deref()),
            _ => None,
        }
    }
}

fn missing(
    epoch: u32,
    watcher: u32,
    view: &View,
    writes: &BTreeMap<(u32, i64), &Operation>,
    figures: &mut Figures,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    for range in &view.covered {
        for ((_, revision), write) in writes.range((epoch, *range.start())..=(epoch, *range.end())) {
            figures.events_expected += 1;
            let request = &write.request;
            let seen = view.value(*revision, &request.key);
            let but = match seen {
                Some(value) if value == request.kind.value() => continue,
                Some(Some(value)) => format!("got `{value}`"),
                Some(None) => "got a deletion".to_owned(),
                None => "never got it".to_owned(),
            };
            let sentence = format!(
                "Watcher {watcher} covered the revisions {} to {}, but of {} it {but}.",
                range.start(),
                range.end(),
                describe(write)
            );
            let event = view.events.get(&(*revision, &*request.key)).copied();
            let violation = Violation::new(ViolationKind::WatchGap, sentence).in_epoch(epoch).at_key(&request.key);
            violations.push(violation.with_operations([*write]).with_watches(event));
        }
    }
    violations
}

/// Deletions have no value that names them: each needs an acknowledged delete of its revision, or one of unknown outcome
/// for itself.
fn deletions(history: &History, writes: &BTreeMap<(u32, i64), &Operation>) -> Vec<Violation> {
    let mut possible: HashMap<(u32, &str), Vec<i64>> = HashMap::new();
    for operation in &history.operations {
        let request = &operation.request;
        if request.kind == Kind::Delete && matches!(operation.outcome, Outcome::Unknown { .. }) {
            possible.entry((request.epoch, &request.key)).or_default().push(request.called);
        }
    }
    let mut seen: BTreeSet<(u32, i64, &str)> = BTreeSet::new();
    let mut used: HashMap<(u32, &str), usize> = HashMap::new();
    let mut violations = Vec::new();
    for record in &history.watches {
        let Watched::Event { revision, key, value: None } = &record.what else { continue };
        let is_acknowledged = writes
            .get(&(record.epoch, *revision))
            .is_some_and(|write| write.request.kind == Kind::Delete && write.request.key == *key);
        if is_acknowledged || !seen.insert((record.epoch, *revision, key)) {
            continue;
        }
        let place = (record.epoch, key.as_str());
        let number = used.entry(place).or_default();
        let called = possible.get(&place).and_then(|times| times.get(*number));
        *number += 1;
        if called.is_none_or(|called| *called > record.at) {
            let sentence = format!(
                "Watcher {} got a deletion of {key} at revision {revision} at {}, but nobody deleted it.",
                record.watcher,
                seconds(record.at)
            );
            let violation = Violation::new(ViolationKind::EventNobodyWrote, sentence);
            violations.push(violation.in_epoch(record.epoch).at_key(key).with_watches([record]));
        }
    }
    violations
}

/// Where both covered a revision, both saw the same.
fn disagreement(one: (u32, u32), first: &View, other: (u32, u32), second: &View) -> Option<Violation> {
    let (revision, key) = first.difference(second).or_else(|| second.difference(first))?;
    let sentence = format!(
        "Watchers {} and {} both covered revision {revision}, but saw different events of {key} at it.",
        one.1, other.1
    );
    let events = [first, second].into_iter().filter_map(|view| view.events.get(&(revision, key)).copied());
    let violation = Violation::new(ViolationKind::WatchersDisagree, sentence).in_epoch(one.0).at_key(key);
    Some(violation.with_watches(events))
}
