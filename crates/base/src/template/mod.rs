//! Templates: minijinja, strict about undefined names, with the filters people expect.
//!
//! In: scalars, conditions and template files, and a `Scope` of layered variables. Out: rendered
//! nodes, text and values; and, before anything is rendered, the names a template uses.
//! Pure: no clock, no randomness, no environment, no files but those a loader hands in.
//! Values that came from a host are data: they are never rendered themselves.

mod analysis;
mod callables;
mod convert;
mod engine;
mod environment;
mod error;
mod file;
mod filters;
mod functions;
mod limits;
mod methods;
mod predicates;
mod rewrite;
mod scope;
mod session;
#[cfg(test)]
mod tests;
mod view;

pub use analysis::{
    Analysis, NameUse, SyntaxError, guards_in_expression, is_in_braces, names_in_expression, names_in_template,
};
pub use callables::{CallKind, CallUse, UnknownCall, unknown_callables};
pub use engine::Engine;
pub use error::place_in;
pub use file::{FileName, names_in_file};
pub use scope::{DynamicLayer, Layer, Scope};
