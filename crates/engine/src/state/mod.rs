//! State: what a run leaves on the operator's disk, so that it can be looked at and resumed.
//!
//! ```text
//! .etcdrun/
//!   .gitignore           keeps all of it out of a repository
//!   objects/SUM          texts that runs were loaded from, by their sum
//!   runs/ID/bundle.json  the command line, the settings, and which texts answered for which path
//!   runs/ID/journal      one line a transition, with a sum; only ever appended to
//!   runs/ID/events       what reporters were told
//!   runs/ID/key          what registered results are encrypted with
//!   drained.json         hypervisors that take no members for now
//! ```
//!
//! In: records from `execute`. Out: the same records after a crash, and what follows from them.
//! Folders are 0700 and files 0600. Never connects anywhere, never prints.

mod bundle;
mod drained;
mod failpoint;
mod folder;
mod journal;
mod operator;
mod past;
mod plan_file;
mod read;
mod record;
mod recorder;
mod runs;
mod vault;

pub use bundle::Bundle;
pub use drained::{Drained, Gone};
pub use folder::StateFolder;
pub use journal::Journal;
pub use operator::Operator;
pub use past::{Done, Moment, NodePast, Past};
pub use plan_file::{PlanFile, PlannedGraph};
pub use read::{Line, ReadJournal, read_journal};
pub use record::{NodeKey, Record};
pub use recorder::{Recorder, Settled};
pub use runs::{NodeSummary, RunState, RunSummary, StoredRun};
pub use vault::Vault;

pub use crate::state_folder::{RunId, StateError};
use crate::state_folder::{make_folder, open_private, sync_folder, write_private};
