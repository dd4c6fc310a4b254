//! Modules: what a task calls. One file each, with typed arguments and a POSIX shell payload.
//!
//! In: rendered arguments. Out: an `Action`, either a payload that checks and applies on the target
//! in one exec, or an operator-side action. A module never opens a connection by itself, never
//! prints, and changes nothing in check mode.
//!
//! To add one: copy a file, implement `Module`, and add a line to `registry`.

mod action;
mod assert;
mod cloud_init;
mod cluster;
mod command;
mod copy;
mod debug;
mod domain_changes;
mod domain_xml;
mod download;
mod etcd_alarm;
mod etcd_apart;
mod etcd_auth;
mod etcd_backup;
mod etcd_bootstrap;
mod etcd_canary;
mod etcd_checkpoint;
mod etcd_cluster;
mod etcd_config;
mod etcd_defrag;
mod etcd_destroy;
mod etcd_downgrade;
mod etcd_drill;
mod etcd_found;
mod etcd_gate;
mod etcd_hosts;
mod etcd_member;
mod etcd_move_leader;
mod etcd_order;
mod etcd_path;
mod etcd_pulse;
mod etcd_release;
mod etcd_restore;
mod etcd_retire;
mod etcd_salvage;
mod etcd_salvage_look;
mod etcd_salvage_save;
mod etcd_service;
mod etcd_snapshot;
mod facts;
mod fail;
mod fetch;
mod file;
mod filesystem;
mod group;
mod guest_interface;
mod guest_preflight;
mod guest_retire;
mod guest_states;
mod guest_trust;
mod http;
mod ignition;
mod image;
mod inventory_edit;
mod libvirt;
mod libvirt_domain;
mod libvirt_network;
mod libvirt_pool;
mod libvirt_power;
mod libvirt_volume;
mod line_edit;
mod line_in_file;
mod local;
mod mount;
mod package;
mod pause;
mod ping;
mod pki_ca;
mod pki_certificate;
mod pki_rotation;
mod pki_users;
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
pub(crate) use etcd_found::{FoundEtcd, find_etcd, read_etcd_files};
pub use etcd_hosts::{Questions, Server, Way, see_hosts};
pub(crate) use etcd_restore::time as restore_time;
pub use facts::{FACT_FIELDS, Facts};
pub(crate) use guest_states::{GuestStates, MadeGuest, guest_states};
pub use registry::{all, find, names};
pub use spec::{BuildContext, Module, ModuleError, ModuleSpec, ResultField};
pub(crate) use words::split as split_words;
