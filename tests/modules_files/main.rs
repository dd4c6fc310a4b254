//! The modules that handle files and commands, each on a real sshd and in three shells.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

#[path = "../support/mod.rs"]
mod support;

mod arguments;
mod bench;
mod commands;
mod copying;
mod lines;
mod paths;
mod transfers;
