//! Clients that use a cluster all the time, and a judge of what it answered them.
//!
//! ```text
//!   register clients  ─┐                                         ┌── check ── Verdict
//!   watchers           ├── cluster      history.jsonl ── History ┤
//!   lease clients      │      │              ▲                   └── (again, from the file)
//!   sampler of members ┘      └── answers ───┘
//! ```
//!
//! In goes a way to reach a cluster; out comes a history of every call, and a verdict on it. It must never use the code that it
//! judges, and never take for certain what a lost answer leaves open.

mod availability;
mod check;
mod clients;
mod clock;
mod cluster;
mod connect;
mod failure;
mod gate;
mod hashes;
mod history;
mod judge;
mod record;
mod recorder;
mod settings;
mod shared;

pub use availability::{Gap, Gaps};
pub use check::{Count, Figures, LeaseFigures, Verdict, Violation, ViolationKind, check, check_within};
pub use cluster::{Cluster, Endpoint, Login, Tls};
pub use hashes::{Hash, MemberHash, hash_kv, hashes_agree};
pub use history::{History, load};
pub use judge::Judge;
pub use record::{
    Answer, End, Epoch, Kind, LeaseRecord, LeaseStep, Member, MembersRecord, Operation, Outcome, Pause, Request, Start,
    Version, WatchRecord, Watched,
};
pub use settings::Settings;
