//! The integration tests, in one program: it is linked once, and every test is still its own process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

mod cli;
mod docs;
mod engine;
mod inventory;
mod lab;
mod layers;
mod modules_files;
mod modules_system;
mod plan;
mod playbook;
mod readme;
mod remote;
mod runs;
mod secrets;
mod ssh;
mod support;
