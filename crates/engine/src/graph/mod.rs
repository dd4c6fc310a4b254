//! Graph: nodes are tasks on targets, edges are reasons.
//!
//! In: what `compile` adds, node by node. Out: an acyclic graph that `execute` walks and `export`
//! draws. Plain data; knows nothing of SSH or of how a task is run.

mod cycle;
mod export;
mod types;

pub use cycle::{Cycle, find_cycle};
pub use export::{Foreseen, Format};
pub use types::{
    BlockParts, Edge, EdgeKind, Graph, Node, NodeIndex, NodeKind, PlayIndex, PlayInfo, Reason, RolloutGroup,
    RolloutStep, SharedLane, TaskIndex, TaskInfo, Turn, Undo,
};
