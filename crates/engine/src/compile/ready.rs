//! What modules need of the inventory: reported when a playbook is loaded, and not by a task that fails half-way.

use std::{collections::HashSet, sync::Arc};

use crate::{
    inventory::{HostId, Inventory},
    playbook::Task,
    source::{Diagnostic, Diagnostics, Vars},
    task::{Library, ModuleSpec},
};

/// What is missing for what the play does to these hosts.
pub(super) fn check<'p>(
    inventory: &Inventory,
    tasks: impl Iterator<Item = &'p Arc<Task>>,
    hosts: &[HostId],
    extra_vars: &Vars,
    diagnostics: &mut Diagnostics,
) {
    let mut seen = HashSet::new();
    let modules = tasks.map(|task| task.module).filter(|module| seen.insert(module.name));
    let missing_for = |module: &'static ModuleSpec| {
        let hosts = hosts.iter().map(|host| inventory.host_by_id(*host));
        hosts.filter_map(move |host| module.missing(inventory, host, extra_vars))
    };
    once_each(modules.flat_map(missing_for)).for_each(|problem| diagnostics.push(problem));
}

/// What playbooks that call these modules would find missing, as warnings: an inventory may be for other things.
pub fn missing(library: &Library, inventory: &Inventory) -> Vec<Diagnostic> {
    let extra_vars = Vars::default();
    let of = |module: &'static ModuleSpec| {
        let extra_vars = &extra_vars;
        inventory.hosts().filter_map(move |host| module.missing(inventory, host, extra_vars))
    };
    let warning = |problem: Diagnostic| Diagnostic {
        message: format!("`etcdrun playbook site.yaml` would be refused: {}", problem.message),
        ..Diagnostic::warning(problem.span, "").maybe_help(problem.help)
    };
    once_each(library.modules.iter().flat_map(of)).map(warning).collect()
}

/// One mistake of a cluster is reported once, and not for each member.
fn once_each(problems: impl Iterator<Item = Diagnostic>) -> impl Iterator<Item = Diagnostic> {
    let mut seen = HashSet::new();
    problems.filter(move |problem| seen.insert((problem.span, problem.message.clone())))
}
