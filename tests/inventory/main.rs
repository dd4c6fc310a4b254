//! The inventory, loaded from real files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
mod load;
mod patterns;
mod support;
