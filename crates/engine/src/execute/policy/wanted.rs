//! Which locks a run needs, from what its tasks may change.
//!
//! A cluster is locked as a whole, because runs on two of its members share a quorum: on a majority of its
//! members, and on their hypervisors. A hypervisor is shared, unless a task disrupts it. Any other host is
//! its own lock.

use std::collections::{BTreeMap, BTreeSet};

use crate::{
    graph::Graph,
    inventory::{HostId, HostKind, Inventory},
    model::Disruption,
    playbook::{On, Task},
    remote::LockName,
};

/// What is to be locked: who keeps which locks.
#[derive(Clone, Debug, Default)]
pub(in crate::execute) struct Wanted {
    pub keepers: BTreeMap<HostId, BTreeSet<LockName>>,
    pub clusters: BTreeSet<String>,
}

/// Tasks that only look, or say that they change nothing, need no lock. Nor does what runs here.
pub(in crate::execute) fn changes(task: &Task) -> bool {
    let is_here = task.on.as_ref().is_some_and(|on| on.value == On::Operator);
    !(task.effects.read_only || (task.effects.opaque && task.says_unchanged()) || is_here)
}

impl Wanted {
    /// All that is known before anything runs.
    pub(in crate::execute) fn by(graph: &Graph, inventory: &Inventory) -> Self {
        let mut wanted = Self::default();
        for index in graph.work() {
            let node = graph.node(index);
            let Some(task) = graph.task_of(index).filter(|task| changes(task)) else { continue };
            for target in node.target.map_or_else(|| graph.hosts_of(node), |target| vec![target]) {
                wanted.target(inventory, target, task);
            }
        }
        wanted.spread(inventory);
        wanted
    }

    /// What one task needs that turns out to run on this host.
    pub(in crate::execute) fn by_task(inventory: &Inventory, target: HostId, task: &Task) -> Self {
        let mut wanted = Self::default();
        wanted.target(inventory, target, task);
        wanted.spread(inventory);
        wanted
    }

    fn target(&mut self, inventory: &Inventory, target: HostId, task: &Task) {
        let host = inventory.host_by_id(target);
        match &host.kind {
            HostKind::Plain => self.add(target, "host", host.name.as_str(), false),
            HostKind::Hypervisor => {
                self.add(target, "hypervisor", host.name.as_str(), task.effects.disrupts < Disruption::Yes);
            }
            HostKind::Member { cluster } => drop(self.clusters.insert(cluster.to_string())),
        }
    }

    /// The lock of a cluster is kept by all who could be asked for it.
    fn spread(&mut self, inventory: &Inventory) {
        for cluster in self.clusters.clone() {
            for &member in inventory.cluster(&cluster).map_or(&[][..], |cluster| &cluster.members) {
                self.add(member, "cluster", &cluster, false);
                if let Some(hypervisor) = inventory.hypervisor_of(member) {
                    self.add(hypervisor.id, "cluster", &cluster, false);
                }
            }
        }
    }

    /// An exclusive lock wins over a shared one of the same name.
    fn add(&mut self, keeper: HostId, kind: &str, name: &str, shared: bool) {
        let plain = |c: char| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' };
        let name: String = format!("{kind}-{name}").chars().map(plain).collect();
        let locks = self.keepers.entry(keeper).or_default();
        if shared && locks.contains(&LockName { name: name.clone(), shared: false }) {
            return;
        }
        locks.remove(&LockName { name: name.clone(), shared: true });
        locks.insert(LockName { name, shared });
    }

    /// Leaves out what is held already; an exclusive lock does for a shared one.
    pub(in crate::execute) fn without(mut self, held: &BTreeMap<HostId, BTreeSet<LockName>>) -> Self {
        self.keepers.retain(|keeper, locks| {
            if let Some(held) = held.get(keeper) {
                locks.retain(|lock| {
                    !held.contains(lock) && !held.contains(&LockName { shared: false, name: lock.name.clone() })
                });
            }
            !locks.is_empty()
        });
        self
    }
}
