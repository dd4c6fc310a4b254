//! Source: YAML text becomes spanned, tagged nodes; problems become diagnostics.
//!
//! In: files of the inventory, playbooks, roles. Out: `Node` trees whose every part knows its place,
//! typed by `typed`; and `Diagnostics`, all of a file at once where that is possible.
//! Encrypted values and files are opened here if an `Opener` was brought along, and only if it was.
//! Never connects anywhere, never prints, never panics on any input.

mod diagnostics;
pub mod disk;
mod node;
mod ownership;
mod parse;
mod scalar;
mod sealed;
mod sources;
mod suggest;
mod typed;

pub use diagnostics::{Diagnostic, Diagnostics, Severity};
pub use node::{Key, Kind, Map, Node, Vars};
pub use ownership::{distrust, exposed};
pub use parse::{MAX_FILE_BYTES, parse};
pub use sealed::{AGE_TAG, OpenError, Opener, is_sealed};
pub use sources::{Position, Sources, UsedFiles};
pub use suggest::{did_you_mean, nearest};
pub use typed::{TypeError, check, from_node};
