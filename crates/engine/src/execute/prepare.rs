//! Makes a segment of nodes: what each will do, worked out before those in front of it have run.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use super::{
    foresight::{At, unknown},
    items::{Gathered, Item},
    node::{Built, NodeRun, Trouble},
    pending::Pending,
};
use crate::{
    model::{Disruption, Outcome},
    playbook::Task,
    remote::{OnFailure, Payload, Session, Step},
    task::{Action, OperatorFile},
    template::Scope,
};

/// How much the values of one segment weigh at most; hundreds of hosts may have one at the same time.
const HEAVIEST: usize = 512 << 10;

/// Nodes that go out together, as far as they are known.
#[derive(Default)]
pub(super) struct Draft {
    pub nodes: VecDeque<Prepared>,
    pub steps: Vec<Step>,
    /// Where and as whom all of it runs.
    pub session: Option<Session>,
    /// What the nodes will leave behind.
    pending: Arc<Pending>,
    weight: usize,
    /// There is a step of which nobody knows what it does.
    has_opaque: bool,
    /// Clusters with members that some of it might take down.
    pub watched: BTreeSet<String>,
    /// The last node is known to fail, so nothing comes behind it.
    pub closed: bool,
}

/// A node that is ready to run.
pub(super) struct Prepared {
    pub run: NodeRun,
    pub parts: VecDeque<Part>,
    pub gathered: Gathered,
    /// It has to be on record before it starts.
    pub changes: bool,
}

/// The whole of a task, or one item of its loop.
pub(super) struct Part {
    pub item: Option<Item>,
    /// What it may do, and where.
    pub at: Option<At>,
    pub work: Work,
}

pub(super) enum Work {
    /// Needs no target: what came of it is known already.
    Known(Result<Outcome, Trouble>),
    /// The segment's next step.
    Awaited,
}

/// A part, and what it asks of the target.
struct Planned {
    item: Option<Item>,
    work: Result<Plan, Trouble>,
}

enum Plan {
    Known(Outcome, Option<At>),
    Step { session: Session, step: Box<Step>, at: At, changes: bool, watched: BTreeSet<String> },
}

impl Draft {
    /// Adds a node, or hands it back if it has to wait for what the others leave, or for the operator.
    pub(super) fn add(&mut self, run: NodeRun) -> Result<(), Box<NodeRun>> {
        let scope = run.scope(run.host, Some(&self.pending));
        let planned = run.plan(&scope);
        let reads_pending = self.pending.was_read();
        match planned.filter(|planned| !reads_pending && self.takes(&run, planned)) {
            Some(planned) => self.take(run, planned),
            None => return Err(Box::new(run)),
        }
        Ok(())
    }

    fn takes(&self, run: &NodeRun, planned: &[Planned]) -> bool {
        let steps = || {
            planned.iter().filter_map(|planned| match &planned.work {
                Ok(Plan::Step { session, step, .. }) => Some((session, step)),
                _ => None,
            })
        };
        let here = self.session.as_ref().or_else(|| steps().next().map(|(session, _)| session));
        let is_here = |session: &Session| here.is_none_or(|here| here.is_like(session));
        let weight = steps().map(|(_, step)| step.weight()).sum::<usize>() + self.weight;
        // A command on this very machine may be what makes the file that is read here.
        let too_early = self.has_opaque
            && reads_files(&run.task)
            && self.session.as_ref().is_some_and(|session| session.link.is_this_machine());
        steps().all(|(session, _)| is_here(session)) && !too_early && (weight <= HEAVIEST || self.nodes.is_empty())
    }

    fn take(&mut self, run: NodeRun, planned: Vec<Planned>) {
        self.pending.add(run.host, &run.task);
        let goes_on = run.task.ignore_errors || run.task.never_fails();
        let first_step = self.steps.len();
        let mut parts = VecDeque::with_capacity(planned.len());
        let mut changes = false;
        for Planned { item, work } in planned {
            let (work, at) = match work {
                Ok(Plan::Step { session, step, at, changes: may, watched }) => {
                    changes |= may;
                    self.watched.extend(watched);
                    self.weight += step.weight();
                    self.has_opaque |= at.effects.opaque;
                    self.session.get_or_insert(session);
                    let on_failure = if goes_on { OnFailure::GoOn } else { OnFailure::StopLater };
                    self.steps.push(Step { on_failure, ..*step });
                    (Work::Awaited, Some(at))
                }
                Ok(Plan::Known(outcome, at)) => {
                    self.closed |= outcome.failed && !goes_on;
                    (Work::Known(Ok(outcome)), at)
                }
                Err(trouble) => {
                    self.closed |= !run.task.ignore_errors;
                    (Work::Known(Err(trouble)), None)
                }
            };
            parts.push_back(Part { item, at, work });
        }
        if let Some(last) = self.steps[first_step..].last_mut().filter(|_| !goes_on) {
            last.on_failure = OnFailure::Stop;
        }
        self.nodes.push_back(Prepared { run, parts, gathered: Gathered::default(), changes });
    }
}

impl NodeRun {
    /// What the node asks of its target. `None` if the operator has to be at hand.
    fn plan(&self, scope: &Scope) -> Option<Vec<Planned>> {
        self.start_over();
        let whole = |work| Some(vec![Planned { item: None, work }]);
        if let Some(outcome) = self.context.foresight.may_not_run(&self.who()) {
            return whole(Ok(Plan::Known(outcome, None)));
        }
        let Some(items) = &self.task.loops else {
            return whole(self.plan_one(scope)?);
        };
        // Each of them may read what the one before it has set.
        if self.sets_facts() {
            return None;
        }
        let list = self.items(items, scope);
        if let Some(why) = self.reads.take() {
            return whole(Ok(Plan::Known(unknown(why), None)));
        }
        let list = match list {
            Ok(list) => list,
            Err(trouble) => return whole(Err(trouble)),
        };
        let plan = |(position, item)| {
            let (item, scope) = self.enter(items, position, item, scope);
            Some(Planned { item: Some(item), work: self.plan_one(&scope)? })
        };
        list.iter().enumerate().map(plan).collect()
    }

    fn plan_one(&self, scope: &Scope) -> Option<Result<Plan, Trouble>> {
        let holds = self.conditions_hold(scope);
        if let Some((outcome, at)) = self.in_doubt(scope) {
            return Some(Ok(Plan::Known(outcome, at)));
        }
        match holds {
            Ok(true) => {}
            Ok(false) => return Some(Ok(Plan::Known(self.passed_over(), None))),
            Err(trouble) => return Some(Err(trouble)),
        }
        let built = self.build(scope).and_then(|built| Ok((built, self.target(scope)?)));
        if let Some((outcome, at)) = self.in_doubt(scope) {
            return Some(Ok(Plan::Known(outcome, at)));
        }
        let (Built { effects, action, check_mode }, target) = match built {
            Ok(built) => built,
            Err(trouble) => return Some(Err(trouble)),
        };
        match action {
            Action::Engine(_) => None,
            // A turn must be taken between looking and doing. Nobody can look with a raw command.
            Action::Remote(_) if effects.disrupts > Disruption::No && !effects.opaque && !check_mode => None,
            Action::Done(outcome) => Some(Ok(Plan::Known(*outcome, None))),
            Action::Remote(payload) => Some(self.session(scope).and_then(|session| {
                let watched = self.context.guard.watched(self.actor(), &effects, target, check_mode);
                let payload = Payload { watch: watched.as_ref().map(|on| on.watch.clone()), ..payload };
                let watched = watched.map(|on| on.clusters).unwrap_or_default();
                let step = Box::new(self.step(&session, payload, &effects, check_mode));
                step.check()?;
                session.refuse_exposed(&step)?;
                let changes = step.fenced;
                Ok(Plan::Step { session, step, at: At { effects, target }, changes, watched })
            })),
        }
    }
}

/// Whether the task carries a file of the operator to its target.
fn reads_files(task: &Task) -> bool {
    let has_source = || task.args.as_map().is_some_and(|args| args.get("src").is_some());
    match task.module.traits.file {
        OperatorFile::Template | OperatorFile::Script => true,
        OperatorFile::Copied => has_source(),
        // It is unpacked by the operator's side, never in a segment.
        OperatorFile::Archive | OperatorFile::None => false,
    }
}
