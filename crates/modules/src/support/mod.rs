//! What modules share: the cluster that a task is about, files of the operator, placing a file on a target.

pub(crate) mod cluster_args;
pub(crate) mod line_edit;
pub(crate) mod local;
pub(crate) mod place;
pub(crate) mod scratch;
#[cfg(test)]
pub(crate) mod testing;
pub(crate) mod words;

// For the files of this folder.
use crate::task::{
    Action, ActionContext, ActionError, BuildContext, ClusterKey, EngineAction, ModuleError, ResultField, Running,
};
#[cfg(test)]
use crate::task::{Module, ModuleSpec};

/// The default of a flag that is on.
pub(crate) fn yes() -> bool {
    true
}
