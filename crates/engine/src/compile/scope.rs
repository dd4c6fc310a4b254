//! The one list of precedence: which variable wins. docs/inventory.md tells it.

use std::sync::Arc;

use crate::{
    inventory::Host,
    playbook::Task,
    source::Vars,
    template::{Layer, Scope},
};

/// What is written down for a task on a host, lowest first: everything below what tasks leave behind.
pub(crate) fn written_layers(task: &Task, host: &Host, play_vars: &Arc<Vars>, vars_files: &Arc<Vars>) -> Vec<Layer> {
    let roles: Vec<_> = task.role.iter().flat_map(|role| role.chain()).collect();
    let mut layers = Vec::with_capacity(16);
    layers.extend(roles.iter().map(|role| Layer::Nodes(role.defaults.clone())));
    layers.extend(host.layers.iter().cloned().map(Layer::Nodes));
    layers.push(Layer::Nodes(play_vars.clone()));
    layers.push(Layer::Nodes(vars_files.clone()));
    layers.extend(roles.iter().map(|role| Layer::Nodes(role.vars.clone())));
    layers.extend(task.vars.iter().cloned().map(Layer::Nodes));
    layers.extend(roles.iter().map(|role| Layer::Nodes(role.params.clone())));
    layers
}

/// What no task can override: the command line, and the names that are built in.
pub(crate) fn top_layers(host: &Host, extra_vars: &Arc<Vars>) -> Vec<Layer> {
    let extra = Layer::Nodes(extra_vars.clone());
    [extra].into_iter().chain(host.builtin.iter().cloned().map(Layer::Nodes)).collect()
}

/// What is known before anything has run.
pub(super) fn before_running(task: &Task, host: &Host, vars: [&Arc<Vars>; 2], extra_vars: &Arc<Vars>) -> Scope {
    let [play_vars, vars_files] = vars;
    let mut layers = written_layers(task, host, play_vars, vars_files);
    layers.extend(top_layers(host, extra_vars));
    Scope::new(layers)
}
