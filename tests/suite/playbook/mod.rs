//! Playbooks and roles as files on disk.

mod errors;
mod fuzz;
mod load;
mod schema;
mod support;
