//! etcdrun: inventories and playbooks become one task graph that runs over SSH.
//!
//! ```text
//! inventory/ ─┐
//! playbooks/ ─┼▶ load ─▶ compile ─▶ execute ─▶ events ─▶ reporters
//! roles/     ─┘
//! ```
//!
//! A folder a stage. `source`, `template`, `inventory` and `playbook` load; `compile` turns what
//! was loaded into a `graph`; `execute` walks it, with `modules` deciding what a task does,
//! `remote` carrying it to a host and `ssh` moving the bytes; `report` is all that prints.

mod backup;
pub mod cli;
pub mod compile;
pub mod etcd;
pub mod execute;
pub mod graph;
pub mod inventory;
mod membership;
pub mod model;
pub mod modules;
pub mod pki;
pub mod playbook;
pub mod remote;
pub mod report;
mod rollout;
pub mod secret;
pub mod source;
pub mod ssh;
pub mod state;
pub mod template;

/// A task is hundreds of small pieces that live for a moment: with the C library's allocator, a fifth of the time goes there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
