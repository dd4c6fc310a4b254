//! The modules that handle accounts, packages, units, disks, settings and waiting, on a real sshd
//! and in three shells. They need root, and leave the machine as they found it.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on should panic")]

#[path = "../support/mod.rs"]
mod support;

mod accounts;
mod basics;
mod disks;
mod packages;
mod reboots;
mod settings;
mod target;
mod units;
mod waits;
