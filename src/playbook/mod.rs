//! Playbooks and roles, loaded and typed; imports and roles are expanded here.
//!
//! In: a playbook path and the search path for roles. Out: `Playbook`, whose shape is final: every
//! import is read, every role expanded, every keyword typed, every module argument checked.
//! Reads files and nothing else.

mod types;

pub use types::*;
