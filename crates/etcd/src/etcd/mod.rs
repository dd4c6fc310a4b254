//! etcd: what its versions understand, how its servers are configured, and a client of its API that goes through SSH. Snapshots, which
//! are large, come straight where there is a way.
//!
//! ```text
//! client ── gRPC over TLS ── tunnel (direct-tcpip) ── sshd of the member ── etcd
//! ```
//!
//! In: a member, a way to it, and what proves who we are. Out: what the member says. TLS is verified end to end, however
//! the connection gets there. Every call is bounded in time. Knows nothing of playbooks, and prints nothing.

pub mod advisories;
pub mod agree;
mod auth;
mod canary;
mod client;
mod clients;
mod config;
mod error;
mod http;
mod keys;
pub mod lead;
pub mod observe;
mod pace;
pub mod path;
pub mod pipe;
mod record;
pub mod restore;
pub mod rules;
mod sections;
pub mod settings;
pub mod snapshot;
mod status;

/// The systemd unit of a member.
pub const UNIT: &str = "etcd.service";
/// What holds where the inventory says nothing else.
pub const DATA_DIR: &str = "/var/lib/etcd/data";
pub const CLIENT_PORT: u16 = 2379;
pub const PEER_PORT: u16 = 2380;

pub use auth::{Change, Plan, RootPassword, apply, plan};
pub use canary::{Canary, Sight};
pub use client::{Credential, MemberClient, url};
pub use config::{ServerConfig, environment};
pub use error::EtcdError;
pub use keys::{
    Before, DeclaredValue, KeyChange, KeysError, RequestLimits, Wish, all_keys, differing_keys, expand_keys,
    shown as shown_key, transactions, write_keys,
};
pub use pace::Pace;
pub use record::{ClusterRecord, Phase, TurnRecord};
pub use sections::load_inventory;
pub use status::{ClusterStatus, MemberStatus, look};
