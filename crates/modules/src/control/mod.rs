//! Modules that steer a play: they check, say, wait, set variables, and edit the inventory.

pub(super) mod assert;
pub(super) mod debug;
pub(super) mod fail;
pub(super) mod inventory_edit;
pub(super) mod pause;
pub(super) mod set_fact;
pub(super) mod turn_order;

// For the files of this folder.
use crate::{
    support::scratch,
    task::{
        Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
        Sets, Traits,
    },
};
