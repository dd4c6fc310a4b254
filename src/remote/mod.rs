//! Remote: carries payloads to a host in one exec and reads their results back.
//!
//! In: a `Segment`, one or more payloads for one target. Out: an outcome for each, streamed while
//! they run. A constant bootstrap is all that ever stands on a command line; the payloads, file
//! bodies and secrets in them travel on stdin. Knows the shell, and nothing of playbooks.

mod payload;
mod session;

pub use payload::{Payload, Segment, Step, quote};
pub use session::{Link, RemoteError, Session, StepSink, Surroundings};
