//! What `execute` tells the journal of one graph, and what it can ask of the past.

use std::sync::Arc;

use super::{Journal, NodeKey, NodePast, Past, Record, StateError, Vault, operator::seconds_up};
use crate::model::{Outcome, RunResult, Status};

/// How a node ended.
#[derive(Clone, Copy, Debug)]
pub struct Settled<'a> {
    pub status: Status,
    pub changed: bool,
    pub doubt: bool,
    pub seconds: f64,
    /// What later tasks can read of it.
    pub left: Option<&'a Outcome>,
}

/// The journal of one graph. Without a journal it says and does nothing.
#[derive(Clone, Debug, Default)]
pub struct Recorder {
    inner: Option<Arc<Inner>>,
}

#[derive(Debug)]
struct Inner {
    journal: Journal,
    vault: Arc<Vault>,
    graph: u32,
    past: Past,
}

impl Recorder {
    pub fn new(journal: Journal, vault: Arc<Vault>, graph: u32, past: Past) -> Self {
        Self { inner: Some(Arc::new(Inner { journal, vault, graph, past })) }
    }

    /// The journal of a graph of which an earlier process has recorded this.
    #[cfg(test)]
    pub(crate) fn behind(folder: &std::path::Path, lines: &[super::Line], graph: &crate::graph::Graph) -> Self {
        let (journal, vault) = (folder.join("journal"), folder.join("vault"));
        let vault = Vault::create(&vault).unwrap();
        let past = Past::of(lines, (0, graph), &vault);
        Self::new(Journal::open(&journal, 0, 0).unwrap(), Arc::new(vault), 0, past)
    }

    /// For runs that leave nothing behind.
    pub fn none() -> Self {
        Self::default()
    }

    pub fn is_some(&self) -> bool {
        self.inner.is_some()
    }

    pub fn graph(&self) -> u32 {
        self.inner.as_ref().map_or(0, |inner| inner.graph)
    }

    pub fn past(&self, node: usize) -> Option<&NodePast> {
        self.inner.as_ref()?.past.node(u32::try_from(node).ok()?)
    }

    /// How many nodes need not run again.
    pub fn done(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.past.done())
    }

    /// A node is about to change something. On the disk when this returns; an error means that it must not.
    pub async fn intent(&self, node: usize, id: &Arc<str>) -> Result<(), StateError> {
        let Some(inner) = &self.inner else { return Ok(()) };
        inner.journal.commit(Record::Intent { key: inner.key(node, id), up: seconds_up() }).await
    }

    pub fn settled(&self, node: usize, id: &Arc<str>, how: Settled<'_>) {
        let Some(inner) = &self.inner else { return };
        let Settled { status, changed, doubt, seconds, left } = how;
        let left = left.and_then(|outcome| inner.vault.seal(outcome));
        inner.journal.note(Record::Settled { key: inner.key(node, id), status, changed, doubt, seconds, left });
    }

    /// The last word on this graph; all before it is on the disk when this returns.
    pub async fn through(&self, result: RunResult) -> Result<(), StateError> {
        let Some(inner) = &self.inner else { return Ok(()) };
        inner.journal.commit(Record::Through { graph: inner.graph, result }).await
    }

    /// Why nothing more can be recorded, if that is so.
    pub fn failure(&self) -> Option<&StateError> {
        self.inner.as_ref().and_then(|inner| inner.journal.failure())
    }
}

impl Inner {
    fn key(&self, node: usize, id: &Arc<str>) -> NodeKey {
        NodeKey { graph: self.graph, node: u32::try_from(node).unwrap_or(u32::MAX), id: id.clone() }
    }
}
