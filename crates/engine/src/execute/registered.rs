//! What tasks have left behind for each host while a run lasts: registered results and facts.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::{
    inventory::{HostId, Inventory},
    model::{Outcome, Value, ValueMap},
    playbook::Task,
    task::Sets,
};

/// By host; replaced as a whole, so readers keep a snapshot.
pub(super) struct Registered(Vec<Mutex<Arc<ValueMap>>>);

impl Registered {
    pub(super) fn new(inventory: &Inventory) -> Self {
        Self(inventory.hosts().map(|_| Mutex::default()).collect())
    }

    /// A snapshot of what tasks have left for this host so far.
    pub(super) fn late(&self, host: HostId) -> Arc<ValueMap> {
        lock(&self.0[host.index()]).clone()
    }

    pub(super) fn remember(&self, host: HostId, name: &str, value: Value) {
        Arc::make_mut(&mut lock(&self.0[host.index()])).insert(name.to_owned(), value);
    }

    /// Registers a result for every host it speaks for, and keeps facts.
    pub(super) fn register(&self, task: &Task, hosts: &[HostId], outcome: &Outcome) {
        if let Some(name) = &task.register {
            hosts.iter().for_each(|host| self.remember(*host, name, outcome.to_value()));
        }
        self.keep_facts(task, hosts, outcome);
    }

    /// What a rescue can ask: which task failed, and how.
    pub(super) fn keep_failure(&self, task: &str, hosts: &[HostId], outcome: &Outcome) {
        for &host in hosts {
            self.remember(host, "ansible_failed_task", serde_json::json!({ "name": task }));
            self.remember(host, "ansible_failed_result", outcome.to_value());
        }
    }

    pub(super) fn keep_facts(&self, task: &Task, hosts: &[HostId], outcome: &Outcome) {
        let Some(facts) = outcome.data.get("facts").filter(|_| !outcome.failed) else { return };
        for &host in hosts {
            match (task.module.traits.sets, facts) {
                (Sets::Facts(_), facts) => self.remember(host, "facts", facts.clone()),
                (Sets::Arguments, Value::Object(facts)) => {
                    facts.iter().for_each(|(name, value)| self.remember(host, name, value.clone()));
                }
                _ => {}
            }
        }
    }

    /// What the items of a loop have set in an earlier run.
    pub(super) fn restore_items(&self, task: &Task, hosts: &[HostId], outcome: &Outcome) {
        let items = outcome.data.get("results").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for facts in items.iter().filter(|item| item["failed"] != true).filter_map(|item| item.get("facts")) {
            self.keep_facts(task, hosts, &Outcome::ok().with("facts", facts.clone()));
        }
    }
}

/// A poisoned lock only means that another task panicked; the data is replaced as a whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
