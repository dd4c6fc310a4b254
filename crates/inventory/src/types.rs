//! The inventory as the other stages see it.

use std::{collections::HashMap, sync::Arc};

use indexmap::IndexMap;

use crate::{
    model::{ClusterName, GroupName, HostName, Span},
    source::Vars,
};

/// A host's place in the inventory's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId(pub u32);

impl HostId {
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(super) fn from_index(index: usize) -> Self {
        Self(u32::try_from(index).unwrap_or(u32::MAX))
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostKind {
    Plain,
    Hypervisor,
    Member { cluster: ClusterName },
}

/// Anything reached over SSH.
#[derive(Clone, Debug)]
pub struct Host {
    pub id: HostId,
    pub name: HostName,
    /// Where the inventory describes it.
    pub span: Span,
    pub kind: HostKind,
    /// Where its guest runs.
    pub hypervisor: Option<HostName>,
    pub zone: Option<String>,
    pub endpoint: crate::ssh::Endpoint,
    /// Whether tasks on it run as another user by default, where the inventory says so.
    pub r#become: Option<bool>,
    pub become_user: Option<String>,
    /// Where the inventory names its keys.
    pub identity_place: Option<Span>,
    /// Variables, lowest precedence first: all, parent groups, child groups, cluster, host.
    pub layers: Vec<Arc<Vars>>,
    /// A host's own `interfaces`, `guest` and `etcd`, or a hypervisor's `pools`, `networks` and `images`, as written.
    pub sections: Arc<Vars>,
    /// What templates know of every host. Names do not repeat and are reserved.
    pub builtin: Vec<Arc<Vars>>,
    /// Every group it is in, directly or not, sorted; without `all`.
    pub group_names: Vec<GroupName>,
}

impl Host {
    /// Where to connect, as the inventory says.
    pub fn address(&self) -> &str {
        self.endpoint.address.as_deref().unwrap_or(self.name.as_str())
    }

    /// The cluster that it is a member of.
    pub fn cluster(&self) -> Option<&ClusterName> {
        match &self.kind {
            HostKind::Member { cluster } => Some(cluster),
            HostKind::Plain | HostKind::Hypervisor => None,
        }
    }

    /// Whether it is a guest that etcdrun creates.
    pub fn is_guest(&self) -> bool {
        self.endpoint.pin.is_some()
    }

    /// The value of a variable after precedence, built-in names first.
    pub fn var(&self, name: &str) -> Option<&crate::source::Node> {
        self.builtin.iter().chain(self.layers.iter().rev()).find_map(|layer| layer.get(name))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupKind {
    /// `all`, `ungrouped`, `hypervisors`, `members` and `guests`.
    Builtin,
    Cluster,
    Group,
}

#[derive(Clone, Debug)]
pub struct Group {
    pub name: GroupName,
    pub kind: GroupKind,
    pub span: Option<Span>,
    pub children: Vec<GroupName>,
    /// The hosts it names itself.
    pub hosts: Vec<HostId>,
    /// All its hosts: its own first, then its children's.
    pub members: Vec<HostId>,
    pub vars: Arc<Vars>,
}

#[derive(Clone, Debug)]
pub struct Cluster {
    pub name: ClusterName,
    pub span: Option<Span>,
    pub members: Vec<HostId>,
    /// `etcd`, `guest`, `tls` and the other sections, as written.
    pub sections: Arc<Vars>,
    pub vars: Arc<Vars>,
}

/// Everything the inventory files say, with names resolved.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    pub(super) hosts: Vec<Host>,
    pub(super) by_name: HashMap<HostName, HostId>,
    pub(super) groups: IndexMap<GroupName, Group>,
    pub(super) clusters: IndexMap<ClusterName, Cluster>,
    /// The releases of etcd that can be installed, by version, as written.
    pub etcd_releases: Arc<Vars>,
}

impl Inventory {
    /// All hosts, in the order they were written.
    pub fn hosts(&self) -> impl ExactSizeIterator<Item = &Host> {
        self.hosts.iter()
    }

    /// How hosts are reached, for what the command line adds to it.
    pub fn endpoints_mut(&mut self) -> impl Iterator<Item = &mut crate::ssh::Endpoint> {
        self.hosts.iter_mut().map(|host| &mut host.endpoint)
    }

    pub fn host(&self, name: &str) -> Option<&Host> {
        self.by_name.get(name).map(|id| self.host_by_id(*id))
    }

    /// The host with this id, which must come from this inventory.
    pub fn host_by_id(&self, id: HostId) -> &Host {
        &self.hosts[id.index()]
    }

    pub fn groups(&self) -> impl Iterator<Item = &Group> {
        self.groups.values()
    }

    /// A group or a cluster's group; `clusters` is another word for `members`.
    pub fn group(&self, name: &str) -> Option<&Group> {
        self.groups.get(super::collect::canonical(name))
    }

    pub fn clusters(&self) -> impl Iterator<Item = &Cluster> {
        self.clusters.values()
    }

    pub fn cluster(&self, name: &str) -> Option<&Cluster> {
        self.clusters.get(name)
    }

    pub fn hypervisors(&self) -> impl Iterator<Item = &Host> {
        self.hosts.iter().filter(|host| host.kind == HostKind::Hypervisor)
    }

    /// The hypervisor that a host's guest runs on.
    pub fn hypervisor_of(&self, id: HostId) -> Option<&Host> {
        self.host(self.host_by_id(id).hypervisor.as_ref()?.as_str())
    }
}
