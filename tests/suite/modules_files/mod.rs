//! The modules that handle files and commands, each on a real sshd and in three shells.
use crate::support;

mod arguments;
mod bench;
mod commands;
mod copying;
mod lines;
mod paths;
mod retired;
mod transfers;
