//! Payloads on their way: shells, sudo, jobs, lost connections.

mod jobs;
mod shells;
mod ssh;
mod strangers;
