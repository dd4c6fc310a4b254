//! Model: the words every stage shares. Spans, names, values, effects, outcomes, secrets to hide.
//!
//! Plain data without behaviour that belongs to a stage; imports nothing from the other folders.

mod effects;
mod escape;
mod event;
mod mac;
mod mask;
mod names;
mod outcome;
mod plan;
mod scalar;
mod span;
mod version;

pub use effects::{Disruption, Effects, Resource};
pub use escape::{one_line, without_escapes};
pub use event::{EVENT_VERSION, Emitter, Event, EventKind, NodeInfo, RolloutPart, RunResult, Shown};
pub use mac::derived_mac;
pub use mask::{MASK, MIN_SECRET, MaskedStream, Masker};
pub use names::{ClusterName, GroupName, HostName};
pub use outcome::{Diff, Ending, Outcome, Status};
pub use plan::{Forecast, Move, PlanCounts, Prediction, Predictions, moves};
pub use scalar::{Base64, ByteSize, CpuSet, DiskName, FileMode, ParseScalarError, Seconds};
pub use span::{FileId, Span, Spanned};
pub use version::Version;

/// A run-time value: registered results, facts, rendered variables.
pub type Value = serde_json::Value;

/// A run-time map, in insertion order.
pub type ValueMap = serde_json::Map<String, Value>;
