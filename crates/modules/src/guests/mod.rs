//! Modules about guests: what libvirt knows of them, what they are told at their first boot, and how they come to be trusted.

pub(super) mod cloud_init;
mod domain_changes;
mod domain_xml;
mod guest_interface;
pub(super) mod guest_preflight;
pub(super) mod guest_retire;
pub(super) mod guest_states;
pub(super) mod guest_trust;
pub(super) mod ignition;
mod image;
mod libvirt;
pub(super) mod libvirt_domain;
pub(super) mod libvirt_network;
pub(super) mod libvirt_pool;
pub(super) mod libvirt_power;
pub(super) mod libvirt_volume;
mod login;

// For the files of this folder.
use crate::{
    files::download,
    support::{local, place, scratch},
    task::{
        Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
        Traits,
    },
};
