//! The modules that handle accounts, packages, units, disks, settings and waiting, on a real sshd
//! and in three shells. They need root, and leave the machine as they found it.
use crate::support;

mod accounts;
mod basics;
mod disks;
mod packages;
mod reboots;
mod settings;
mod target;
mod units;
mod waits;
