//! What the playbooks of `etcdrun member` are told, as their variable `change`.

use serde::Serialize;

use super::Texts;
use crate::{inventory::edit::Edit, source::disk};

/// A member, and where etcd listens there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Listing {
    pub name: String,
    pub ip: String,
}

/// The facts are from the look that was taken; the playbook looks again before it changes anything.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Change {
    pub cluster: String,
    /// The member that goes; empty if none does.
    pub old: String,
    /// The member that comes; empty if none does.
    pub new: String,
    pub alive: bool,
    /// Whether it runs, on damaged data: it counts as dead, and its alarm is left to be disarmed.
    pub corrupt: bool,
    /// What happens first to the list of members: `add`, `remove` or `shrink`.
    pub first: &'static str,
    /// The member through which the cluster is spoken to.
    pub via: String,
    /// The machine on which the old member's etcd is stopped; empty if there is none.
    pub old_host: String,
    pub old_hypervisor: String,
    /// Whether the new member gets a machine that is there already.
    pub new_machine: bool,
    /// Whether its guest is made on a hypervisor that the old one is not on.
    pub new_hypervisor: bool,
    /// Whether the old guest is powered off.
    pub fence: bool,
    /// Whether the person has said that it is off, and nobody could see it.
    pub waived: bool,
    /// Whether a learner of an earlier attempt is in the way.
    pub leftover: bool,
    /// Whether all members that stay are well.
    pub whole: bool,
    pub snapshot: bool,
    pub allow_outage: bool,
    pub before: Vec<Listing>,
    pub well: Vec<Listing>,
    pub during: Vec<Listing>,
    pub after: Vec<Listing>,
    pub inventory: Edited,
}

/// What becomes of a file of the inventory.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Edited {
    pub path: String,
    pub before: String,
    pub after: String,
    pub edits: Vec<Edit>,
}

impl Edited {
    pub fn of(texts: &Texts) -> Self {
        let path = std::path::absolute(&texts.path).unwrap_or_else(|_| texts.path.clone());
        Self {
            path: path.display().to_string(),
            before: disk::sum(texts.original.as_bytes()),
            after: disk::sum(texts.after.as_bytes()),
            edits: texts.edit().into_iter().collect(),
        }
    }
}
