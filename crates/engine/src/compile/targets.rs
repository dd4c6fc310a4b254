//! Where tasks run, as far as the playbook and the inventory say: it must exist.

use std::sync::Arc;

use crate::{
    inventory::{HostId, HostKind, Inventory},
    playbook::{On, OncePer, Task},
    source::{Diagnostic, Diagnostics, Node, did_you_mean},
};

/// What `delegate_to` calls the operator's machine, unless the inventory has a host of that name.
pub(crate) const OPERATOR_NAMES: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Reports tasks that could never find their target on one of the hosts.
pub(super) fn check<'p>(
    inventory: &Inventory,
    tasks: impl Iterator<Item = &'p Arc<Task>>,
    hosts: &[HostId],
    diagnostics: &mut Diagnostics,
) {
    for task in tasks {
        delegate(inventory, task, diagnostics);
        hypervisor(inventory, task, hosts, diagnostics);
    }
}

fn delegate(inventory: &Inventory, task: &Task, diagnostics: &mut Diagnostics) {
    let Some(node) = task.delegate_to.as_ref().filter(|node| !node.is_template()) else { return };
    let Some(name) = Node::as_str(node).filter(|name| inventory.host(name).is_none()) else { return };
    if OPERATOR_NAMES.contains(&name) {
        return;
    }
    let near = did_you_mean(name, inventory.hosts().map(|host| host.name.as_str()));
    diagnostics.push(Diagnostic::error(node.span, format!("`{name}` is not a host of the inventory")).maybe_help(near));
}

fn hypervisor(inventory: &Inventory, task: &Task, hosts: &[HostId], diagnostics: &mut Diagnostics) {
    let on = task.on.as_ref().filter(|on| on.value == On::Hypervisor).map(|on| on.span);
    let once = task.once_per.as_ref().filter(|once| once.value == OncePer::Hypervisor).map(|once| once.span);
    // A condition may be what keeps it away from members that live in no guest.
    if !task.when.is_empty() {
        return;
    }
    let Some(span) = on.or(once.filter(|_| task.on.is_none() && task.delegate_to.is_none())) else { return };
    let lacks = |host: &&HostId| {
        let host = inventory.host_by_id(**host);
        host.kind != HostKind::Hypervisor && host.hypervisor.is_none()
    };
    if let Some(host) = hosts.iter().find(lacks) {
        let name = &inventory.host_by_id(*host).name;
        diagnostics.push(
            Diagnostic::error(span, format!("this runs on the hypervisor of each host, and {name} has none"))
                .help("give the host a `hypervisor` in the inventory, or leave the host out of `hosts:`"),
        );
    }
}
