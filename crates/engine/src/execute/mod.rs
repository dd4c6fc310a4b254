//! Execute: walks the graph. Every ready node runs, within limits.
//!
//! In: a compiled graph, the inventory it was compiled from, a way to connect. Out: events, and a
//! summary. Never prints; never rereads a playbook.
//!
//! ```text
//! schedule    what may run (`scheduler`), what becomes of nodes whose predecessors have ended (`settle`), which nodes could
//!    │        share an exec (`fusion`), whose turn it is (`turns`)
//!    └─ perform    `segment` runs nodes of one target, one or many: `prepare` tells how many fit; `node` is one of them
//!         ├─ policy     what has to be so around a step: `once`, `locks`, `guard`, `foresight`; `question` asks what
//!         │             `guard` wants to know
//!         └─ fleet      the way to hosts
//! ```

mod context;
mod fleet;
mod interrupt;
mod observe;
mod perform;
mod policy;
mod registered;
mod rehearsal;
mod schedule;
mod specials;
mod unlock;
mod unpacked;
mod visit;

use std::sync::Arc;

use perform::{items, node, prepare, segment, surroundings, verdict};
use policy::{foresight, guard, locks, once, pending, wanted};
use schedule::{fusion, scheduler, settle, turns};

pub use context::RunOptions;
pub use interrupt::Interrupt;
pub use locks::Locking;
pub use observe::observe;
pub use unlock::{HostLocks, Unlocking};
pub use visit::Visit;

use crate::{
    graph::Graph,
    inventory::Inventory,
    model::{Emitter, EventKind, PlanCounts, RunResult},
    remote::Release,
    source::Sources,
    ssh::Connector,
    state::Recorder,
    task::RunScope,
};

/// What a run works on.
pub struct Run {
    pub graph: Arc<Graph>,
    pub inventory: Arc<Inventory>,
    pub sources: Arc<Sources>,
    pub connector: Connector,
    pub options: RunOptions,
    pub emitter: Emitter,
    pub interrupt: Interrupt,
    /// Where it is recorded what happens, and what happened before.
    pub recorder: Recorder,
    /// What its actions have in common, and those of other graphs of the same run.
    pub scope: Arc<RunScope>,
}

/// Runs the graph to its end, or to where it can go. Its last event comes once the locks are released: what there is to say about
/// them comes before it.
pub async fn run(run: Run) -> RunResult {
    let rehearsal = rehearsal::of(&run);
    let context = Arc::new(context::Context::new(run));
    if let Err(refused) = context.locks.take(|| wanted::Wanted::by(&context.graph, &context.inventory)).await {
        let (messages, result) = refused.end();
        messages.into_iter().for_each(|msg| context.emitter.emit(EventKind::Warning { msg }));
        return end(&context, Through::nothing(&context, result), false).await;
    }
    if let Err(result) = rehearsal::agrees(&context, rehearsal).await {
        context.locks.release(Release::Only).await;
        return end(&context, Through::nothing(&context, result), false).await;
    }
    let through = scheduled(&context).await;
    let result = through.result;
    // What hosts remember of commands is of use until it is known here that all of them are done.
    let is_over = result == RunResult::Success && context.recorder.through(result).await.is_ok();
    context.locks.release(if is_over { Release::AndForget } else { Release::Only }).await;
    end(&context, through, is_over).await
}

async fn end(context: &context::Context, through: Through, is_over: bool) -> RunResult {
    let Through { result, seconds, execs, plan } = through;
    let run = context.options.run_id.clone();
    context.emitter.emit(EventKind::RunFinished { run, seconds, result, execs, plan });
    context.fleet.close(is_over).await;
    result
}

/// In a task of its own: each node that ends wakes the scheduler, which costs more outside of the runtime's threads.
async fn scheduled(context: &Arc<context::Context>) -> Through {
    let mut scheduler = tokio::task::JoinSet::new();
    scheduler.spawn(scheduler::Scheduler::new(context.clone()).run());
    match scheduler.join_next().await {
        Some(Ok(through)) => through,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        _ => Through::nothing(context, RunResult::Interrupted),
    }
}

/// What came of a graph.
struct Through {
    result: RunResult,
    seconds: f64,
    execs: u64,
    plan: Option<PlanCounts>,
}

impl Through {
    fn nothing(context: &context::Context, result: RunResult) -> Self {
        Self { result, seconds: 0.0, execs: context.fleet.execs(), plan: None }
    }
}
