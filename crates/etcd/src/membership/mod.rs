//! Who belongs to a cluster, and how that changes: a member more, one less, one in the place of another.
//!
//! ```text
//! inventory, Observation ──> Situation ─┐
//! what was asked for ───────> Request  ─┼──> Change: what the playbook is told, the steps, the inventory's new text
//! ```
//!
//! Pure: it decides and calculates. It connects nowhere, and writes nothing; `cli::support::members` looks, asks the person, and plays
//! the playbook, in which the same rules are asked again before anything is done.

mod adopt;
mod change;
mod diagnosis;
mod draft;
mod drain;
pub mod facts;
mod quorum;
mod request;
mod situation;
mod texts;
mod told;

pub use adopt::{Adoption, Newcomer, Server, is_address};
pub use change::{Change, Edited, Listing};
pub use diagnosis::{InventoryMember, MadeGuest, disagreements, orphan};
pub use draft::{Files, Ground, InventoryFile, Prepared, prepare};
pub use drain::{Departure, departures, rounds};
pub use facts::Facts;
pub use quorum::{Step, arithmetic};
pub use request::{Refusal, Request, Verb};
pub use situation::{Condition, Situation};
pub use texts::{NewMember, Texts, next_name, pin};
pub use told::{Told, Url, places};
