//! The items of a loop: each by itself, and all of them together.

use crate::execute::{
    context::layer,
    foresight::unknown,
    node::{NodeError, NodeRun},
};
use crate::{
    model::{EventKind, Outcome, Shown, Value},
    playbook::Loop,
    source::Node,
    template::{Layer, Scope},
};

/// One item, and what people see of it.
pub(in crate::execute) struct Item {
    value: Value,
    shown: Value,
    names: Layer,
}

/// What came of the items so far.
#[derive(Default)]
pub(in crate::execute) struct Gathered {
    all: Outcome,
    results: Vec<Value>,
}

impl NodeRun {
    /// Runs all items, one after the other.
    pub(in crate::execute) async fn each(&self, items: &Loop, scope: &Scope) -> Result<Outcome, NodeError> {
        let list = self.items(items, scope);
        if let Some(why) = self.reads.take() {
            return Ok(unknown(why));
        }
        let list = list?;
        let mut gathered = Gathered::default();
        for (position, item) in list.iter().enumerate() {
            if position > 0 && !self.context.interrupt.pause(items.pause).await {
                return Ok(self.all_items(gathered, Some(list.len())));
            }
            // An item may read what the one before it has set.
            let scope = if self.sets_facts() { self.scope(self.host, None) } else { scope.clone() };
            let (item, scope) = self.enter(items, position, item, &scope);
            let result = self.one(&scope).await;
            self.gather(&mut gathered, item, result)?;
        }
        Ok(self.all_items(gathered, None))
    }

    pub(in crate::execute) fn items(&self, items: &Loop, scope: &Scope) -> Result<Vec<Node>, NodeError> {
        let list = self.render(&items.items, scope)?;
        match list.as_seq() {
            Some(list) => Ok(list.to_vec()),
            None => Err(NodeError::failed(format!("`loop` takes a list, found {}", list.describe()))),
        }
    }

    /// The item, and the scope in which it is seen.
    pub(in crate::execute) fn enter(&self, items: &Loop, position: usize, item: &Node, scope: &Scope) -> (Item, Scope) {
        let value = item.to_value();
        let mut entries = vec![(items.var.to_string(), value.clone())];
        entries.extend(items.index_var.as_ref().map(|name| (name.to_string(), position.into())));
        let names = layer(entries);
        let scope = scope.with(names.clone());
        let label = || items.label.as_ref().and_then(|label| self.context.engine.render_node(label, &scope).ok());
        let shown = match self.task.no_log {
            true => "(hidden)".into(),
            false => label().map_or_else(|| value.clone(), |label| label.to_value()),
        };
        (Item { value, shown, names }, scope)
    }

    /// An item whose task is at fault fails by itself, so that the others still run.
    pub(in crate::execute) fn gather(
        &self,
        gathered: &mut Gathered,
        item: Item,
        result: Result<Outcome, NodeError>,
    ) -> Result<(), NodeError> {
        let outcome = match result {
            Err(NodeError::Failed(outcome, _)) => *outcome,
            other => other?,
        };
        self.remember_facts(&outcome);
        self.context.emitter.emit(EventKind::ItemFinished {
            node: self.info.clone(),
            item: item.shown,
            status: outcome.status(),
            result: Shown::new(&outcome, self.task.no_log),
        });
        gathered.add(self, item.value, &outcome);
        Ok(())
    }

    /// The playbook's own view of a result, with all that is known by now.
    pub(in crate::execute) fn judged_later(&self, item: Option<&Item>, outcome: Outcome) -> Result<Outcome, NodeError> {
        if outcome.skipped || (self.task.changed_when.is_empty() && self.task.failed_when.is_empty()) {
            return Ok(outcome);
        }
        let scope = self.scope(self.host, None);
        let scope = item.map_or_else(|| scope.clone(), |item| scope.with(item.names.clone()));
        self.judged(&scope, outcome)
    }

    /// The outcome of the whole loop; `of` says how many items there are, should some be missing.
    pub(in crate::execute) fn all_items(&self, gathered: Gathered, of: Option<usize>) -> Outcome {
        let Gathered { mut all, results } = gathered;
        if let Some(of) = of {
            all.failed = true;
            all.msg = format!("interrupted after {} of {of} items", results.len());
        }
        all.skipped = !results.is_empty() && results.iter().all(|result| result["skipped"] == true);
        if all.skipped {
            all.msg = self.skipped_by_when().msg;
        }
        all.data.insert("results".into(), results.into());
        all
    }
}

impl Gathered {
    pub(in crate::execute) fn len(&self) -> usize {
        self.results.len()
    }

    fn add(&mut self, run: &NodeRun, value: Value, item: &Outcome) {
        let mut result = item.to_value();
        if let Some(items) = &run.task.loops {
            result[&*items.var] = value;
        }
        self.results.push(result);
        let all = &mut self.all;
        all.changed |= item.changed;
        all.unknown |= item.unknown;
        all.diff.extend(item.diff.iter().cloned());
        if item.failed && !all.failed {
            all.failed = true;
            all.refused = item.refused;
            all.msg.clone_from(&item.msg);
            all.rc = item.rc;
            all.stdout.clone_from(&item.stdout);
            all.stderr.clone_from(&item.stderr);
        }
    }
}
