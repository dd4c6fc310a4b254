//! Inventory: hypervisors, hosts, groups, clusters and members, with their variables.
//!
//! ```text
//! files ─▶ documents ─▶ draft ─▶ inventory
//! files.rs  parse       collect.rs (and ansible.rs)  resolve.rs
//! ```
//!
//! In: paths of files, directories and executables. Out: an `Inventory` in which every name is
//! resolved, and all problems in `Diagnostics`. Runs nothing but an executable inventory, connects
//! nowhere and prints nothing.

mod ansible;
mod builtin;
mod collect;
mod draft;
mod dynamic;
pub mod edit;
mod entry;
mod files;
mod hierarchy;
mod interfaces;
mod keys;
mod pattern;
mod range;
pub mod render;
mod resolve;
mod schema;
pub mod sections;
mod settings;
mod types;

use std::path::PathBuf;

pub use collect::is_name;
pub use draft::RESERVED_VARS;
pub use files::yaml_files;
pub use pattern::Pattern;
pub use schema::schema;
pub use types::{Cluster, Group, GroupKind, Host, HostId, HostKind, Inventory};

use etcdrun_base::{model, source};
use etcdrun_ssh::ssh;

use crate::source::{Diagnostics, Sources};

/// Reads inventories and merges them from left to right. Always returns what could be understood;
/// whoever wants to act on it looks at the diagnostics first.
pub fn load(paths: &[PathBuf], sources: &mut Sources, diagnostics: &mut Diagnostics) -> Inventory {
    let files = files::read(paths, sources, diagnostics);
    let mut collector = collect::Collector { draft: draft::Draft::default(), overfull: false, diagnostics };
    for document in files.documents {
        draft::check_tags(&document.node, collector.diagnostics);
        match document.format {
            files::Format::Yaml => collector.document(document.node),
            files::Format::Dynamic => collector.dynamic(document.node),
        }
    }
    files.vars.into_iter().for_each(|file| collector.vars_file(file));
    if collector.overfull {
        return Inventory::default();
    }
    resolve::resolve(collector.draft, sources, diagnostics)
}
