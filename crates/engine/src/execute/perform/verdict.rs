//! `changed_when`, `failed_when` and `until`: the playbook's own view of a result.

use crate::execute::context::{Context, layer};
use crate::{
    model::{Outcome, Value},
    playbook::{Expression, Task},
    source::Diagnostic,
    template::Scope,
};

/// The scope in which a result is judged: it is visible under its registered name and as `result`.
pub(in crate::execute) fn judging_scope(task: &Task, scope: &Scope, result: Value) -> Scope {
    let name = task.register.as_ref().map_or("result", |name| &***name);
    let mut entries = vec![(name.to_owned(), result.clone())];
    if name != "result" {
        entries.push(("result".to_owned(), result));
    }
    scope.with(layer(entries))
}

/// Applies `changed_when` and `failed_when`. Each is a list of which all must hold.
pub(in crate::execute) fn judge(
    context: &Context,
    task: &Task,
    scope: &Scope,
    outcome: &mut Outcome,
) -> Result<(), Diagnostic> {
    if task.changed_when.is_empty() && task.failed_when.is_empty() {
        return Ok(());
    }
    let scope = judging_scope(task, scope, outcome.to_value());
    if !task.changed_when.is_empty() {
        outcome.changed = all_hold(context, &task.changed_when, &scope)?;
    }
    if !task.failed_when.is_empty() {
        let fails = all_hold(context, &task.failed_when, &scope)?;
        if fails && !outcome.failed {
            outcome.msg = format!("failed_when: {}", texts(&task.failed_when));
        }
        outcome.failed = fails;
    }
    Ok(())
}

pub(in crate::execute) fn all_hold(
    context: &Context,
    conditions: &[Expression],
    scope: &Scope,
) -> Result<bool, Diagnostic> {
    for condition in conditions {
        if !context.engine.eval_bool(&condition.value, condition.span, scope)? {
            return Ok(false);
        }
    }
    Ok(true)
}

pub(in crate::execute) fn texts(conditions: &[Expression]) -> String {
    conditions.iter().map(|condition| &*condition.value).collect::<Vec<_>>().join(" and ")
}
