//! For each key there is an order of the calls that explains all answers: each call has its effect between its start and its end.
//!
//! Writes of unknown outcome may have their effect at any time after their call, or never. Three facts keep the search short:
//!
//! - Every acknowledged operation tells what the key held before it. So a write whose value nobody saw changes no answer,
//!   and is left out; and one whose value was seen has the revision that was seen.
//! - Whoever got a later revision came later. So a write of a known revision ends, at the latest, with the first call that got this
//!   revision or a later one.
//! - After a call that overlaps no other one, the state is known. So a long history is searched in parts.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    ops::Range,
    sync::Arc,
    time::{Duration, Instant},
};

use porcupine_rs::{CheckResult, check_operations_timeout};

use super::{
    figures::Figures,
    model::{Content, Expected, Register, Step},
    violation::{Violation, ViolationKind, describe},
};
use crate::{
    history::History,
    record::{Kind, Operation, Outcome, Version},
};

/// A part of a history has about so many acknowledged operations.
const PART: usize = 400;
/// So many operations before the one that does not fit are reported.
const CONTEXT: usize = 8;

pub(super) fn check(history: &History, deadline: Instant, figures: &mut Figures) -> Vec<Violation> {
    let mut violations = Vec::new();
    for ((epoch, key), calls) in calls_by_key(history) {
        let parts = parts(&calls.acknowledged);
        figures.searches += parts.len();
        for range in parts {
            let begin = range.start.checked_sub(1).map(|last| calls.acknowledged[last]);
            let part = Calls { acknowledged: calls.acknowledged[range].to_vec(), uncertain: calls.uncertain.clone() };
            let found = match search(begin, &part, deadline) {
                CheckResult::Ok => continue,
                CheckResult::Unknown => undecided(key, &part),
                CheckResult::Illegal => unexplained(key, begin, &part, deadline),
            };
            violations.push(found.in_epoch(epoch).at_key(key));
        }
    }
    violations
}

/// The calls of one key in one epoch.
#[derive(Clone, Default)]
struct Calls<'a> {
    /// In the order of their calls.
    acknowledged: Vec<&'a Operation>,
    /// Writes of unknown outcome, in the order of their calls.
    uncertain: Vec<&'a Operation>,
}

fn calls_by_key(history: &History) -> BTreeMap<(u32, &str), Calls<'_>> {
    let mut keys: BTreeMap<(u32, &str), Calls> = BTreeMap::new();
    for operation in &history.operations {
        let request = &operation.request;
        let calls = keys.entry((request.epoch, &request.key)).or_default();
        match operation.outcome {
            Outcome::Acknowledged(_) => calls.acknowledged.push(operation),
            Outcome::Unknown { .. } if request.kind.is_write() => calls.uncertain.push(operation),
            Outcome::Unknown { .. } | Outcome::Failed { .. } => {}
        }
    }
    carry_over(&mut keys);
    keys
}

/// A value of unknown outcome may appear in a later epoch.
fn carry_over(keys: &mut BTreeMap<(u32, &str), Calls<'_>>) {
    let mut earlier: HashMap<&str, Vec<&Operation>> = HashMap::new();
    for ((_, key), calls) in keys {
        let earlier = earlier.entry(key).or_default();
        let own: Vec<&Operation> = calls.uncertain.clone();
        calls.uncertain.splice(0..0, earlier.iter().copied());
        earlier.extend(own.iter().filter(|operation| operation.request.kind.value().is_some()));
    }
}

/// Each part ends with a call that overlaps no other one of the key.
fn parts(acknowledged: &[&Operation]) -> Vec<Range<usize>> {
    let mut parts = Vec::new();
    let (mut start, mut latest_return) = (0, i64::MIN);
    for (index, operation) in acknowledged.iter().enumerate() {
        let is_after_all = latest_return < operation.request.called;
        latest_return = latest_return.max(operation.returned);
        let is_before_all = acknowledged.get(index + 1).is_some_and(|next| operation.returned < next.request.called);
        if index + 1 - start >= PART && is_after_all && is_before_all {
            parts.push(start..index + 1);
            start = index + 1;
        }
    }
    if start < acknowledged.len() {
        parts.push(start..acknowledged.len());
    }
    parts
}

/// Whether there is an order that explains the answers, if it begins after a certain call.
fn search(begin: Option<&Operation>, calls: &Calls, deadline: Instant) -> CheckResult {
    let remaining = deadline.saturating_duration_since(Instant::now());
    if remaining < Duration::from_millis(1) {
        return CheckResult::Unknown;
    }
    check_operations_timeout(&steps(begin, calls), remaining)
}

type Timed = porcupine_rs::Operation<Register>;

fn timed(called: i64, returned: i64, step: Step) -> Timed {
    Timed { client_id: None, call_time: called, return_time: returned, op: step, metadata: None }
}

fn steps(begin: Option<&Operation>, calls: &Calls) -> Vec<Timed> {
    let mut steps = Vec::with_capacity(calls.acknowledged.len() + 1);
    if let Some((operation, answer)) = begin.and_then(|begin| Some((begin, begin.answer()?))) {
        let seen = content(answer.seen.as_ref());
        let left = left(operation).unwrap_or(seen);
        steps.push(timed(i64::MIN, i64::MIN + 1, Step::Begin { content: left, revision: answer.revision }));
    }
    for operation in &calls.acknowledged {
        if let Some(answer) = operation.answer() {
            let step = Step::Acknowledged {
                seen: content(answer.seen.as_ref()),
                left: left(operation),
                revision: answer.revision,
            };
            steps.push(timed(operation.request.called, operation.returned, step));
        }
    }
    let begin = begin.and_then(Operation::answer).map_or(0, |answer| answer.revision);
    steps.extend(seen_writes(begin, calls));
    let last_return = calls.acknowledged.iter().map(|operation| operation.returned).max().unwrap_or(i64::MIN);
    let deletes = calls
        .uncertain
        .iter()
        .filter(|operation| operation.request.kind == Kind::Delete && operation.request.called < last_return);
    let deletes = deletes
        .enumerate()
        .map(|(number, operation)| timed(operation.request.called, i64::MAX, Step::UnknownDelete { number }));
    steps.extend(deletes);
    steps
}

/// The writes of unknown outcome that had their effect after the beginning.
fn seen_writes(begin: i64, calls: &Calls) -> Vec<Timed> {
    let writes: HashMap<&str, &Operation> =
        calls.uncertain.iter().filter_map(|operation| Some((operation.request.kind.value()?, *operation))).collect();
    let mut steps = Vec::new();
    let mut done: HashSet<&str> = HashSet::new();
    for version in calls.acknowledged.iter().filter_map(|operation| operation.seen()) {
        let Some(write) = writes.get(version.value.as_str()) else { continue };
        let limit = first_return_at(calls, version.mod_revision);
        let mut next = Some((*write, Some(version.mod_revision)));
        while let Some((write, revision)) = next.take() {
            let Some(value) = write.request.kind.value() else { break };
            if revision.is_some_and(|revision| revision <= begin) || !done.insert(value) {
                break;
            }
            let expected = match &write.request.kind {
                Kind::CompareAndSwap { expected: Some(expected), .. } => Expected::Value(expected.as_str().into()),
                Kind::CompareAndSwap { expected: None, .. } => Expected::Absent,
                Kind::Put { .. } | Kind::Get | Kind::Delete => Expected::Anything,
            };
            // A swap that had its effect saw the value that it expected.
            if let Expected::Value(expected) = &expected
                && !was_seen(calls, expected)
            {
                next = writes.get(&**expected).map(|write| (*write, None));
            }
            let step = Step::Seen { expected, value: value.into(), revision };
            steps.push(timed(write.request.called, limit.max(write.request.called), step));
        }
    }
    steps
}

fn was_seen(calls: &Calls, value: &str) -> bool {
    calls.acknowledged.iter().filter_map(|operation| operation.seen()).any(|version| version.value == value)
}

/// When somebody first got this revision or a later one.
fn first_return_at(calls: &Calls, revision: i64) -> i64 {
    let later = |operation: &&&Operation| operation.answer().is_some_and(|answer| answer.revision >= revision);
    calls.acknowledged.iter().filter(later).map(|operation| operation.returned).min().unwrap_or(i64::MAX)
}

fn content(version: Option<&Version>) -> Content {
    match version {
        Some(version) => {
            Content::Value { value: Arc::from(version.value.as_str()), mod_revision: Some(version.mod_revision) }
        }
        None => Content::Absent,
    }
}

/// What an operation left, if it wrote.
fn left(operation: &Operation) -> Option<Content> {
    let answer = operation.answer().filter(|answer| answer.written)?;
    Some(match operation.request.kind.value() {
        Some(value) => Content::Value { value: value.into(), mod_revision: Some(answer.revision) },
        None => Content::Absent,
    })
}

fn undecided(key: &str, part: &Calls) -> Violation {
    let sentence = format!("Whether the answers about {key} have an order could not be decided in time.");
    let first_and_last = part.acknowledged.first().into_iter().chain(part.acknowledged.last());
    Violation::new(ViolationKind::Undecided, sentence).with_operations(first_and_last.copied())
}

/// Finds the first answer that does not fit: the history up to its return has no order, and all shorter ones have.
fn unexplained(key: &str, begin: Option<&Operation>, part: &Calls, deadline: Instant) -> Violation {
    let mut by_return = part.acknowledged.clone();
    by_return.sort_by_key(|operation| operation.returned);
    let is_unexplained =
        |operation: &&Operation| search(begin, &until(part, operation.returned), deadline) == CheckResult::Illegal;
    let first = by_return.partition_point(|operation| !is_unexplained(operation));
    let culprit = by_return[first.min(by_return.len() - 1)];
    let sentence = format!("No order of the calls explains {} on {key}.", describe(culprit));
    let context = &by_return[first.saturating_sub(CONTEXT).min(first)..first.min(by_return.len())];
    let uncertain =
        part.uncertain.iter().filter(|operation| operation.request.called < culprit.returned).rev().take(CONTEXT);
    let operations = [culprit].into_iter().chain(context.iter().copied()).chain(uncertain.copied());
    Violation::new(ViolationKind::NotLinearizable, sentence).with_operations(operations)
}

/// What was known at a time: later answers are not there yet, and their writes may have had their effect, or not.
fn until<'a>(part: &Calls<'a>, time: i64) -> Calls<'a> {
    let begun = part.acknowledged.iter().copied().filter(|operation| operation.request.called < time);
    let (acknowledged, open): (Vec<&Operation>, Vec<&Operation>) =
        begun.partition(|operation| operation.returned <= time);
    let open = open.into_iter().filter(|operation| operation.request.kind.is_write());
    let uncertain = part.uncertain.iter().copied().filter(|operation| operation.request.called < time);
    let mut uncertain: Vec<&Operation> = uncertain.chain(open).collect();
    uncertain.sort_by_key(|operation| operation.request.called);
    Calls { acknowledged, uncertain }
}
