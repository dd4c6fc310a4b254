//! What a task is to the engine: a module's specification, the action that it becomes, and the library that both come from.

mod action;
mod library;
mod scope;
mod spec;
mod traits;

pub use action::{Action, ActionContext, ActionError, EngineAction, Permit, Progress, Reach, Running};
pub use library::{Library, Question, Quorum, Word};
pub use scope::RunScope;
pub use spec::{BuildContext, ClusterKey, Module, ModuleError, ModuleSpec, ResultField};
pub use traits::{OperatorFile, Sets, Traits};
