//! Modules about the authority of a cluster, and the certificates that it signs.

pub(super) mod ca;
pub(super) mod certificate;
pub(super) mod rotation;
pub(super) mod users;

// For the files of this folder.
use crate::{
    support::{cluster_args, local, place},
    task::{Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running},
};
