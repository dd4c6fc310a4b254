//! A key as a machine of one state: what it holds, and how far the revision of the store is.

use std::sync::Arc;

use porcupine_rs::Model;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Content {
    /// At the start of an epoch. The first answer tells what it is.
    Unknown,
    Absent,
    /// The revision is unknown where the write was never acknowledged and nobody saw it.
    Value {
        value: Arc<str>,
        mod_revision: Option<i64>,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct State {
    content: Content,
    revision: i64,
    /// How many deletes of unknown outcome were put into the order.
    deletes: usize,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Sets what an earlier part of the history ended with.
    Begin { content: Content, revision: i64 },
    /// An acknowledged operation: what it saw, and what it left if it wrote.
    Acknowledged { seen: Content, left: Option<Content>, revision: i64 },
    /// A write that was not acknowledged, but whose value was seen. A compare-and-swap tells what was there before.
    Seen { expected: Expected, value: Arc<str>, revision: Option<i64> },
    /// A delete of unknown outcome. One that never happened is put at the end, where it harms nobody. All of them do the same, and
    /// none must happen before a certain time, so only the order of their calls is tried.
    UnknownDelete { number: usize },
}

#[derive(Clone, Debug)]
pub(super) enum Expected {
    Anything,
    Absent,
    Value(Arc<str>),
}

#[derive(Clone, Debug)]
pub(super) struct Register;

impl Model for Register {
    type State = State;
    type Op = Step;
    type Metadata = ();

    fn init() -> State {
        State { content: Content::Unknown, revision: 0, deletes: 0 }
    }

    fn step(state: &State, step: &Step) -> (bool, State) {
        match next(state, step) {
            Some(next) => (true, next),
            None => (false, state.clone()),
        }
    }
}

fn next(state: &State, step: &Step) -> Option<State> {
    match step {
        Step::Begin { content, revision } => {
            Some(State { content: content.clone(), revision: *revision, deletes: state.deletes })
        }
        Step::Acknowledged { seen, left, revision } => {
            let is_later = *revision > state.revision || (left.is_none() && *revision == state.revision);
            let content = left.as_ref().unwrap_or(seen).clone();
            let is_possible = is_later && is_same(&state.content, seen);
            is_possible.then_some(State { content, revision: *revision, deletes: state.deletes })
        }
        Step::Seen { expected, value, revision } => {
            let is_later = revision.is_none_or(|revision| revision > state.revision);
            let is_possible = is_later && is_expected(&state.content, expected);
            let content = Content::Value { value: value.clone(), mod_revision: *revision };
            let revision = revision.unwrap_or(state.revision);
            is_possible.then_some(State { content, revision, deletes: state.deletes })
        }
        Step::UnknownDelete { number } => (*number == state.deletes).then(|| State {
            content: Content::Absent,
            revision: state.revision,
            deletes: state.deletes + 1,
        }),
    }
}

fn is_same(content: &Content, seen: &Content) -> bool {
    match (content, seen) {
        (Content::Unknown, _) => true,
        (Content::Value { value, mod_revision: None }, Content::Value { value: seen, .. }) => value == seen,
        (content, seen) => content == seen,
    }
}

fn is_expected(content: &Content, expected: &Expected) -> bool {
    match (content, expected) {
        (Content::Unknown, _) | (_, Expected::Anything) | (Content::Absent, Expected::Absent) => true,
        (Content::Value { value, .. }, Expected::Value(expected)) => value == expected,
        (Content::Absent, Expected::Value(_)) | (Content::Value { .. }, Expected::Absent) => false,
    }
}
