//! Names that nodes of a segment will leave behind, while they have not run yet.
//!
//! A node is prepared before those in front of it have run. Should one of its templates read what they
//! leave, this notices, whichever way the name was reached, and the node waits for the next segment.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
};

use minijinja::Value;

use crate::execute::registered::lock;
use crate::{
    inventory::HostId,
    playbook::Task,
    template::{DynamicLayer, Layer},
};

#[derive(Default)]
pub(in crate::execute) struct Pending {
    names: Mutex<HashSet<(HostId, String)>>,
    was_read: AtomicBool,
}

impl Pending {
    /// Adds what a task leaves for a host.
    pub(in crate::execute) fn add(&self, host: HostId, task: &Task) {
        lock(&self.names).extend(task.produced_names().map(|name| (host, name.to_owned())));
    }

    /// Whether a template has asked for one of the names since the last call.
    pub(in crate::execute) fn was_read(&self) -> bool {
        self.was_read.swap(false, Ordering::Relaxed)
    }

    /// The names of one host as variables.
    pub(in crate::execute) fn layer(self: &Arc<Self>, host: HostId) -> Layer {
        Layer::Dynamic(Arc::new(OfHost { pending: self.clone(), host }))
    }
}

struct OfHost {
    pending: Arc<Pending>,
    host: HostId,
}

impl OfHost {
    fn note(&self, is_read: impl Fn(&(HostId, String)) -> bool) {
        if lock(&self.pending.names).iter().any(is_read) {
            self.pending.was_read.store(true, Ordering::Relaxed);
        }
    }
}

/// Has no values: what is rendered without them is thrown away.
impl DynamicLayer for OfHost {
    fn get(&self, name: &str) -> Option<Value> {
        self.note(|(host, pending)| *host == self.host && pending == name);
        None
    }

    fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn names(&self) -> Vec<String> {
        self.note(|(host, _)| *host == self.host);
        Vec::new()
    }
}
