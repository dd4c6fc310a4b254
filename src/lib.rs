//! etcdrun: inventories and playbooks become one task graph that runs over SSH.
//!
//! ```text
//! inventory/ ─┐
//! playbooks/ ─┼▶ load ─▶ compile ─▶ execute ─▶ events ─▶ reporters
//! roles/     ─┘
//! ```
//!
//! One folder for each stage, and a crate for each layer below them: `base`, `ssh`, `inventory` and `etcd`, in `crates/`.
//! `source`, `template`, `inventory` and `playbook` load; `compile` turns what
//! was loaded into a `graph`; `execute` walks it, with `modules` deciding what a task does,
//! `remote` carrying it to a host and `ssh` moving the bytes; `report` is all that prints.

pub use etcdrun_base::{digest, model, secret, shell, source, state_folder, template};
pub use etcdrun_engine::{compile, execute, graph, playbook, state, task};
pub use etcdrun_etcd::{backup, etcd, http, membership, pki, releases};
pub use etcdrun_inventory as inventory;
pub use etcdrun_modules as modules;
pub use etcdrun_ssh::{remote, ssh};

pub mod cli;
mod embedded;
pub mod report;

/// What the engine is given to work with.
pub static LIBRARY: task::Library =
    task::Library { modules: modules::MODULES, quorum: &modules::EtcdQuorum, embedded: embedded::EMBEDDED };

/// A task is hundreds of small pieces that live for a moment: with the C library's allocator, a fifth of the time goes there.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
