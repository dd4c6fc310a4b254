//! Report: consumes events and prints. Nothing else in the crate writes to the terminal.
