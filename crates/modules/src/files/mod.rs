//! Modules about files on a target.

pub(super) mod copy;
pub(super) mod download;
pub(super) mod fetch;
pub(super) mod file;
pub(super) mod line_in_file;
pub(super) mod template;
pub(super) mod tree;
pub(super) mod unarchive;

// For the files of this folder.
use crate::{
    support::{line_edit, local, place, scratch, words, yes},
    task::{
        Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, OperatorFile, ResultField,
        Running, Traits,
    },
};
