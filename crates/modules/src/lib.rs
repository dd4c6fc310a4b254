//! Modules: what a task calls. One file each, with typed arguments and a POSIX shell payload.
//!
//! In: rendered arguments. Out: an `Action`, either a payload that checks and applies on the target
//! in one exec, or an operator-side action. A module never opens a connection by itself, never
//! prints, and changes nothing in check mode.
//!
//! To add one: copy a file, implement `Module`, and add a line to `registry`.

mod control;
mod etcd;
mod files;
mod guests;
mod pki;
mod registry;
mod support;
mod system;

pub use etcd::{
    found::{FoundEtcd, find_etcd, read_etcd_files},
    hosts::{Questions, Server, Way, see_hosts},
    quorum::EtcdQuorum,
    restore::time as restore_time,
};
use etcdrun_base::{digest, model, secret, source, template};
use etcdrun_engine::{state, task};
use etcdrun_etcd::{backup, http};
use etcdrun_inventory as inventory;
use etcdrun_ssh::{remote, ssh};
pub use guests::guest_states::{GuestStates, guest_states};
pub use registry::MODULES;
pub use support::{cluster_args::tunnel, words::split as split_words};
pub use system::facts::Facts;
