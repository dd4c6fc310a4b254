//! The transport against real servers and agents.

mod auth;
mod bulk;
mod exec;
mod host_keys;
mod hostile;
mod routes;
mod trouble;
