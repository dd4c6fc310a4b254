//! Modules: what a task calls. One file each, with typed arguments and a POSIX shell payload; those about etcd, guests and
//! certificates have folders of their own.
//!
//! In: rendered arguments. Out: an `Action`, either a payload that checks and applies on the target
//! in one exec, or an operator-side action. A module never opens a connection by itself, never
//! prints, and changes nothing in check mode.
//!
//! To add one: copy a file, implement `Module`, and add a line to `registry`.

mod action;
mod assert;
mod cluster;
mod command;
mod copy;
mod debug;
mod download;
mod etcd;
mod facts;
mod fail;
mod fetch;
mod file;
mod filesystem;
mod group;
mod guests;
mod http;
mod inventory_edit;
mod line_edit;
mod line_in_file;
mod local;
mod mount;
mod package;
mod pause;
mod ping;
mod pki;
mod place;
mod reboot;
mod registry;
mod scratch;
mod script;
mod service;
mod set_fact;
mod shell;
mod spec;
mod sysctl;
mod systemd_unit;
mod template;
#[cfg(test)]
mod testing;
mod tree;
mod unarchive;
mod user;
mod wait_for;
mod words;

pub use action::{Action, ActionContext, ActionError, EngineAction, Progress, Reach};
pub(crate) use cluster::tunnel;
pub(crate) use etcd::found::{FoundEtcd, find_etcd, read_etcd_files};
pub use etcd::hosts::{Questions, Server, Way, see_hosts};
pub(crate) use etcd::restore::time as restore_time;
pub use facts::{FACT_FIELDS, Facts};
pub(crate) use guests::guest_states::{GuestStates, MadeGuest, guest_states};
pub use registry::{all, find, names};
pub use spec::{BuildContext, Module, ModuleError, ModuleSpec, ResultField};
pub(crate) use words::split as split_words;
