//! The inventory, loaded from real files.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod bad_input;
mod dynamic;
mod laws;
mod load;
mod patterns;
mod render;
mod scale;
mod support;
