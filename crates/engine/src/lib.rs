//! The engine: playbooks are loaded and compiled to a graph, and the graph is run over SSH. It knows tasks, hosts and turns; what a task
//! does, and what a server in a cluster is, is plugged in with `task::Library`. It prints nothing.

pub mod compile;
pub mod execute;
pub mod graph;
pub mod playbook;
mod rollout;
pub mod state;
pub mod task;
#[cfg(test)]
mod testing;

use etcdrun_base::{
    digest, model,
    mutant::{is_off, policy, repair},
    source, state_folder, template,
};
use etcdrun_inventory as inventory;
use etcdrun_ssh::{remote, ssh};
