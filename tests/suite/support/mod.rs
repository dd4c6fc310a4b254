//! What the integration tests share: above all a real, private OpenSSH server.
#![allow(dead_code, unused_imports, reason = "every test binary uses its own part of this")]

pub mod engine;
pub mod module;
pub mod process;
pub mod program;
pub mod sshd;
pub mod user;

pub use module::{Operator, local_session, problems, run_module, session};
pub use process::{Group, descendants, run, signal, wait_until};
pub use sshd::{Sshd, SshdBuilder, options};
pub use user::TempUser;
