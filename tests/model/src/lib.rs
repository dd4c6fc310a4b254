//! A model of members that fail and operators that act, with the rules of the gates in it. stateright searches it exhaustively.
//!
//! ```text
//! State ──> faults, and what etcd does by itself ──────────────────────────> State
//!   └─────> look ──> rules::judge, membership (the real ones) ──> operator ──> State ──> promises
//! ```
//!
//! A state is a small cluster, one or two operators and what each was about to do. An operator takes a step only if the real rules
//! admit it, asked about what that operator would see. The steps themselves (the tasks of `roles/member`, `roles/rollout_etcd` and the
//! modules `etcd_service` and `etcd_member`) are copied here, since they reach hosts; each says where it is copied from.
//!
//! A check and the act right behind it are one step: what happens between the two, within a second, nobody can prevent. Everything
//! else can happen between any two steps.
//!
//! Nothing here is part of the program. The tests hold the rules against the promises, and name for each rule what its absence costs.

mod change;
mod cluster;
mod faults;
mod list;
mod look;
mod operator;
mod promises;
mod rollout;
mod rules;
mod scope;
mod symmetry;
#[cfg(test)]
mod tests;
mod told;
mod world;

pub use cluster::Cluster;
pub use promises::{Goal, Promise};
pub use scope::{Limits, Scope, Tasks};
pub use world::{Action, State, World};
