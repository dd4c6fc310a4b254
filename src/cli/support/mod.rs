//! What commands share: arguments, settings, exit codes, the way from files to a run, and the way to hosts.

pub mod args;
pub mod clusters;
pub mod config;
pub mod error;
pub mod exit;
pub mod files;
pub mod health;
pub mod input;
pub mod invocation;
pub mod issued;
pub mod listing;
pub mod members;
pub mod memory;
pub mod modules;
pub mod moves;
pub mod planned;
pub mod postgres;
pub mod query;
pub mod record;
pub mod run;
pub mod runtime;
pub mod shelf;
pub mod shell;
pub mod site;
pub mod terminal;
pub mod tunnel;
pub mod vars;
pub mod verb;
pub mod visit;

pub use error::CliError;
pub use exit::Exit;
pub use invocation::Invocation;
