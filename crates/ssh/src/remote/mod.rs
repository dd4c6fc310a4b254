//! Remote: carries payloads to a host in one exec and reads their results back.
//!
//! In: a `Segment`, one or more payloads for one target. Out: an outcome for each, streamed while
//! they run. A constant bootstrap is all that ever stands on a command line; the payloads, file
//! bodies and secrets in them travel on stdin. Knows the shell, and nothing of playbooks.
//!
//! ```text
//! Segment ─▶ script ─▶ channel ══ stdin ══▶ bootstrap, prelude.sh, bodies
//! Outcome ◀─ reader ◀─ channel ◀═ stdout and stderr, cut into steps by marker lines
//! ```

mod channel;
mod error;
mod gather;
mod job;
mod ledger;
mod link;
mod lock;
mod payload;
mod reader;
mod run;
mod scanner;
mod script;
mod session;
mod shell;
mod steps;
mod sudo;
mod transfer;
mod watch;
mod words;

pub use error::{RemoteError, Trouble};
pub use job::JobState;
pub use ledger::Entry;
pub use link::{Link, LinkOptions, Transport};
pub use lock::lock_is_held;
pub use lock::{Fence, LOCK_FOLDER, LockAnswer, LockHolder, LockName, LockOwner, Release, Released};
pub use payload::{OnFailure, Payload, Runs, Segment, Step};
pub use session::{Session, StepSink, Surroundings};
pub use watch::MemberWatch;
pub use words::is_shell_word;
