//! The program as a user runs it.

mod input;
mod run;
