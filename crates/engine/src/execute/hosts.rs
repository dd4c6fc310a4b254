//! What is known of each host while a run lasts: the link to it, and what its tasks left behind.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use crate::{
    inventory::{HostId, Inventory},
    model::{Outcome, Value, ValueMap},
    playbook::Task,
    remote::{Link, LinkOptions},
    ssh::Connector,
    task::Sets,
};

pub(super) struct Hosts {
    connector: Connector,
    link_options: LinkOptions,
    links: Mutex<HashMap<HostId, Arc<Link>>>,
    /// This machine, for what is delegated to it.
    operator: OnceLock<Arc<Link>>,
    /// Registered results and facts set by tasks; replaced as a whole, so readers keep a snapshot.
    late: Vec<Mutex<Arc<ValueMap>>>,
}

impl Hosts {
    pub(super) fn new(inventory: &Inventory, connector: Connector, link_options: LinkOptions) -> Self {
        let late = inventory.hosts().map(|_| Mutex::default()).collect();
        Self { connector, link_options, links: Mutex::default(), operator: OnceLock::new(), late }
    }

    pub(super) fn link(&self, inventory: &Inventory, host: HostId) -> Arc<Link> {
        let mut links = lock(&self.links);
        let make = || {
            let endpoint = inventory.host_by_id(host).endpoint.clone();
            Link::new(self.connector.clone(), endpoint, self.link_options.clone())
        };
        links.entry(host).or_insert_with(make).clone()
    }

    pub(super) fn operator(&self) -> Arc<Link> {
        self.operator.get_or_init(|| Link::local(&["sh"], self.link_options.clone())).clone()
    }

    /// Commands started on hosts so far.
    pub(super) fn execs(&self) -> u64 {
        let operator = self.operator.get().map_or(0, |link| link.execs());
        lock(&self.links).values().map(|link| link.execs()).sum::<u64>() + operator
    }

    /// A snapshot of what tasks have left for this host so far.
    pub(super) fn late(&self, host: HostId) -> Arc<ValueMap> {
        lock(&self.late[host.index()]).clone()
    }

    pub(super) fn remember(&self, host: HostId, name: &str, value: Value) {
        Arc::make_mut(&mut lock(&self.late[host.index()])).insert(name.to_owned(), value);
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

    /// Ends all connections and removes what was staged on the hosts; also what they remember, if `forget`.
    pub(super) async fn close(&self, forget: bool) {
        let links: Vec<_> =
            lock(&self.links).drain().map(|(_, link)| link).chain(self.operator.get().cloned()).collect();
        let closing = links.iter().map(|link| async move {
            if forget {
                link.forget_ledgers().await;
            }
            link.close().await;
        });
        futures_util::future::join_all(closing).await;
    }
}

/// A poisoned lock only means that another task panicked; the data is replaced as a whole.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
