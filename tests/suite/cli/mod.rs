//! The program as a user runs it.

mod backups;
mod input;
mod releases;
mod run;
pub mod verbs;
