//! What one call into the engine remembers: variables already rendered, and those being rendered.
//!
//! Rendering is pure, so a variable is rendered once a call, however often it is used. The memory is
//! the thread's and is emptied when the outermost call ends: a `Scope` stays free of locks, and of
//! reference cycles with the lazy values it hands out.

use std::{cell::RefCell, collections::HashMap};

use minijinja::Value;

use super::{
    Engine, Scope,
    limits::{COLLECTION_STEPS, VARIABLE_DEPTH},
};
use crate::source::{Diagnostic, Node};

/// A node in the light of a scope.
type Key = (usize, usize);

struct Remembered {
    result: Result<Value, Diagnostic>,
    /// Keeps the scope, and so the node, from being freed: their addresses are the key.
    _scope: Scope,
}

#[derive(Default)]
struct Session {
    depth: usize,
    steps: usize,
    remembered: HashMap<Key, Remembered>,
    rendering: Vec<(Key, String)>,
    /// A variable that failed during the innermost run. minijinja compares and hashes without a
    /// way to fail, so a failed item in a list would only be unequal to everything.
    failure: Option<Diagnostic>,
}

thread_local! {
    static SESSION: RefCell<Session> = RefCell::default();
}

/// Leaves also when a filter panics.
struct Leave;

impl Drop for Leave {
    fn drop(&mut self) {
        let forgotten = SESSION.with_borrow_mut(|session| {
            session.depth -= 1;
            (session.depth == 0).then(|| {
                session.rendering.clear();
                session.failure = None;
                std::mem::take(&mut session.remembered)
            })
        });
        // Dropped values may drop scopes of their own, so not while the session is borrowed.
        drop(forgotten);
    }
}

/// Runs one call into the engine. Calls may nest, as when `hostvars` renders for another host.
pub(super) fn enter<R>(call: impl FnOnce() -> R) -> R {
    SESSION.with_borrow_mut(|session| {
        if session.depth == 0 {
            session.steps = 0;
        }
        session.depth += 1;
    });
    let _leave = Leave;
    call()
}

/// Runs one template. A variable that failed makes it fail, however its value was used.
pub(super) fn run<R>(template: impl FnOnce() -> Result<R, Diagnostic>) -> Result<R, Diagnostic> {
    let outer = SESSION.with_borrow_mut(|session| session.failure.take());
    let result = template();
    let failure = SESSION.with_borrow_mut(|session| std::mem::replace(&mut session.failure, outer));
    result.and_then(|value| failure.map_or(Ok(value), Err))
}

pub(super) fn note_failure(problem: &Diagnostic) {
    SESSION.with_borrow_mut(|session| {
        session.failure.get_or_insert_with(|| problem.clone());
    });
}

/// Renders a variable that is a template, or remembers what came of it.
pub(super) fn render(
    engine: &Engine,
    scope: &Scope,
    node: &Node,
    describe: impl FnOnce() -> String,
) -> Result<Value, Diagnostic> {
    enter(|| {
        let key = (scope.address(), std::ptr::from_ref(node).addr());
        if let Some(known) = SESSION.with_borrow(|s| s.remembered.get(&key).map(|r| r.result.clone())) {
            return known;
        }
        SESSION.with_borrow_mut(|session| session.begin(key, describe(), node))?;
        let result = engine.render_variable(node, scope);
        SESSION.with_borrow_mut(|session| {
            session.rendering.pop();
            let remembered = Remembered { result: result.clone(), _scope: scope.clone() };
            session.remembered.insert(key, remembered);
        });
        result
    })
}

/// Counts a step into a collection. False when there were too many. A step that is too deep counts
/// for all that are left: a collection that contains itself twice doubles with every level.
pub(super) fn take_step(is_shallow: bool) -> bool {
    SESSION.with_borrow_mut(|session| {
        session.steps = if is_shallow { session.steps.saturating_add(1) } else { usize::MAX };
        session.steps <= COLLECTION_STEPS
    })
}

impl Session {
    fn begin(&mut self, key: Key, name: String, node: &Node) -> Result<(), Diagnostic> {
        if let Some(start) = self.rendering.iter().position(|(other, _)| *other == key) {
            let names = self.rendering[start..].iter().map(|(_, name)| name.as_str());
            let cycle: Vec<_> = names.chain([name.as_str()]).collect();
            let message = format!("`{name}` is defined by itself: {}", cycle.join(" -> "));
            return Err(Diagnostic::error(node.span, message)
                .help("a variable cannot use its own older value; give one of them another name"));
        }
        if self.rendering.len() >= VARIABLE_DEPTH {
            let message = format!("variables refer to each other more than {VARIABLE_DEPTH} levels deep, at `{name}`");
            return Err(Diagnostic::error(node.span, message));
        }
        self.rendering.push((key, name));
        Ok(())
    }
}
