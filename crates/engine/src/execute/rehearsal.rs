//! Before a plan is run: looks once more, and compares with what was planned.

use std::sync::Arc;

use super::{Locking, Run, RunOptions, context::Context, scheduler::Scheduler};
use crate::{
    model::{Emitter, EventKind, Move, Predictions, RunResult, moves},
    state::Recorder,
};

/// The same run in check mode, unheard.
pub(super) fn of(run: &Run) -> Run {
    let options = RunOptions {
        check_mode: true,
        diff: true,
        live_output: false,
        locking: Locking::None,
        predictions: Predictions::default(),
        planned: None,
        ..run.options.clone()
    };
    Run {
        graph: run.graph.clone(),
        inventory: run.inventory.clone(),
        sources: run.sources.clone(),
        connector: run.connector.clone(),
        options,
        emitter: Emitter::silent(),
        interrupt: run.interrupt.clone(),
        recorder: Recorder::none(),
        scope: Arc::default(),
    }
}

/// Whether everything is as it was planned; otherwise says what is not, and how the run ends.
pub(super) async fn agrees(context: &Context, rehearsal: Run) -> Result<(), RunResult> {
    let Some(planned) = context.options.planned.clone() else { return Ok(()) };
    let predictions = rehearsal.options.predictions.clone();
    let looking = Arc::new(Context::new(rehearsal));
    let result = Scheduler::new(looking.clone()).run().await.result;
    looking.fleet.close(false).await;
    let result = match result {
        RunResult::Success | RunResult::Failed => {
            let moved = moves(&planned, &predictions.sorted());
            if moved.is_empty() {
                return Ok(());
            }
            moved.into_iter().for_each(|moved| tell(context, moved));
            RunResult::Moved
        }
        other => {
            let msg = "not all hosts could be compared with the plan, so nothing was run".to_owned();
            context.emitter.emit(EventKind::Warning { msg });
            other
        }
    };
    Err(result)
}

fn tell(context: &Context, moved: Move) {
    let Move { id, host, task, planned, now, diff } = moved;
    context.emitter.emit(EventKind::Moved { id, host, task, planned, now, diff });
}
