//! SSH transport: connect, exec, tunnel. Knows nothing of tasks or playbooks, and prints nothing.
//!
//! ```text
//! Endpoint ─▶ resolve (~/.ssh/config) ─▶ stream (TCP, jump chain, ProxyCommand)
//!                                          └▶ host key check ─▶ auth ─▶ Connection ─▶ Exec | TcpTunnel
//! ```
//!
//! In goes what the inventory says about a host ([`Endpoint`]); out comes a [`Connection`] on which
//! commands run and TCP tunnels open. A host key that is unknown, changed or revoked is always an
//! error; a connection that hangs or drops ends in an error too, never in a wait without end.

mod auth;
mod config;
mod connection;
mod connector;
mod endpoint;
mod error;
mod exec;
mod host_key;
mod identity;
mod known_hosts;
mod options;
mod pattern;
mod pins;
mod proxy;
mod resolve;
mod session;

pub use connection::{Connection, Stream, TcpTunnel};
pub use connector::Connector;
pub use endpoint::Endpoint;
pub use error::SshError;
pub use exec::{Exec, ExecEvent, ExecReader, ExecWriter, ExitStatus, Output, Signal, Size};
pub use host_key::{HostKeyError, KnownLine};
pub use options::{NoPrompt, Options, Prompt};
pub use pins::{Pinned, Pins};
pub use resolve::{Proxy, Resolved};
