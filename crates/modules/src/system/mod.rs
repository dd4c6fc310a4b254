//! Modules about a machine: commands, packages, services, users, disks, boots, facts.

pub(super) mod command;
pub(super) mod facts;
pub(super) mod filesystem;
pub(super) mod group;
pub(super) mod mount;
pub(super) mod package;
pub(super) mod ping;
pub(super) mod reboot;
pub(super) mod script;
pub(super) mod service;
pub(super) mod shell;
pub(super) mod sysctl;
pub(super) mod systemd_unit;
pub(super) mod user;
pub(super) mod wait_for;

// For the files of this folder.
use crate::{
    support::{local, words, yes},
    task::{
        Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, OperatorFile, ResultField,
        Running, Sets, Traits,
    },
};
