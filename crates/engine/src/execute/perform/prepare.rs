//! Makes a segment of nodes: what each will do, worked out before those in front of it have run.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use crate::execute::{
    foresight::{At, unknown},
    items::{Gathered, Item},
    node::{Known, NodeError, NodeRun, Work},
    pending::Pending,
};
use crate::{
    model::{Disruption, Effects},
    playbook::Task,
    remote::{OnFailure, Payload, Session, Step},
    task::{Action, OperatorFile},
    template::Scope,
};

/// How much the values of one segment weigh at most; hundreds of hosts may have one at the same time.
const HEAVIEST: usize = 512 << 10;

/// Nodes that go out together, as far as they are known.
#[derive(Default)]
pub(in crate::execute) struct Draft {
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
pub(in crate::execute) struct Prepared {
    pub run: NodeRun,
    pub parts: VecDeque<Part>,
    pub gathered: Gathered,
}

/// The whole of a task, or one item of its loop.
pub(in crate::execute) struct Part {
    pub item: Option<Item>,
    pub work: PartWork,
}

pub(in crate::execute) enum PartWork {
    /// Needs no target: what came of it is known already.
    Known(Known),
    /// The segment's next step.
    Awaited {
        /// What it may do, and where.
        at: At,
        /// It has to be on record before it starts.
        changes: bool,
        /// It might take members down.
        watched: bool,
    },
}

impl Prepared {
    /// What parts of it do that may change something.
    pub(in crate::execute) fn changes(&self) -> impl Iterator<Item = &At> {
        self.parts.iter().filter_map(|part| match &part.work {
            PartWork::Awaited { at, changes: true, .. } => Some(at),
            _ => None,
        })
    }
}

/// A part, and what it asks of the target.
struct Planned {
    item: Option<Item>,
    work: Result<Plan, Known>,
}

/// A step, and what has to be known of it.
struct Plan {
    session: Session,
    step: Box<Step>,
    at: At,
    watched: BTreeSet<String>,
}

impl Draft {
    /// Adds a node, or hands it back if it has to wait for what the others leave, or for the operator.
    pub(in crate::execute) fn add(&mut self, run: NodeRun) -> Result<(), Box<NodeRun>> {
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
                Ok(Plan { session, step, .. }) => Some((session, step)),
                Err(_) => None,
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
        for Planned { item, work } in planned {
            let work = match work {
                Ok(Plan { session, step, at, watched }) => {
                    let (changes, is_watched) = (step.fenced, step.payload.watch.is_some());
                    self.watched.extend(watched);
                    self.weight += step.weight();
                    self.has_opaque |= at.effects.opaque;
                    self.session.get_or_insert(session);
                    let on_failure = if goes_on { OnFailure::GoOn } else { OnFailure::StopLater };
                    self.steps.push(Step { on_failure, ..*step });
                    PartWork::Awaited { at, changes, watched: is_watched }
                }
                Err(known) => {
                    self.closed |= match &known.result {
                        Ok(outcome) => outcome.failed && !goes_on,
                        Err(_) => !run.task.ignore_errors,
                    };
                    PartWork::Known(known)
                }
            };
            parts.push_back(Part { item, work });
        }
        if let Some(last) = self.steps[first_step..].last_mut().filter(|_| !goes_on) {
            last.on_failure = OnFailure::Stop;
        }
        self.nodes.push_back(Prepared { run, parts, gathered: Gathered::default() });
    }
}

impl NodeRun {
    /// What the node asks of its target. `None` if the operator has to be at hand.
    fn plan(&self, scope: &Scope) -> Option<Vec<Planned>> {
        self.start_over();
        let whole = |work| Some(vec![Planned { item: None, work }]);
        if let Some(outcome) = self.context.foresight.handler_in_doubt(&self.who()) {
            return whole(Err(Known { result: Ok(outcome), at: None }));
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
            return whole(Err(Known { result: Ok(unknown(why)), at: None }));
        }
        let list = match list {
            Ok(list) => list,
            Err(trouble) => return whole(Err(Known { result: Err(trouble), at: None })),
        };
        let plan = |(position, item)| {
            let (item, scope) = self.enter(items, position, item, scope);
            Some(Planned { item: Some(item), work: self.plan_one(&scope)? })
        };
        list.iter().enumerate().map(plan).collect()
    }

    /// `None` if the operator has to be at hand.
    fn plan_one(&self, scope: &Scope) -> Option<Result<Plan, Known>> {
        if let Some(known) = self.ruled_out(scope) {
            return Some(Err(known));
        }
        let Work { at, action, check_mode, watched } = match self.resolve(scope) {
            Ok(work) => work,
            Err(known) => return Some(Err(*known)),
        };
        match action {
            Action::Engine(_) => None,
            // A turn must be taken between looking and doing. A raw command cannot look.
            Action::Remote(_) if at.effects.disrupts > Disruption::No && !at.effects.opaque && !check_mode => None,
            Action::Done(outcome) => Some(Err(Known { result: Ok(*outcome), at: Some(at) })),
            Action::Remote(payload) => {
                let payload = Payload { watch: watched.as_ref().map(|on| on.watch.clone()), ..payload };
                let watched = watched.map(|on| on.clusters).unwrap_or_default();
                let step = self.checked_step(scope, payload, &at.effects, check_mode);
                Some(match step {
                    Ok((session, step)) => Ok(Plan { session, step, at, watched }),
                    Err(trouble) => Err(Known { result: Err(trouble), at: None }),
                })
            }
        }
    }

    /// A step that may be sent as it is.
    fn checked_step(
        &self,
        scope: &Scope,
        payload: Payload,
        effects: &Effects,
        check_mode: bool,
    ) -> Result<(Session, Box<Step>), NodeError> {
        let session = self.session(scope)?;
        let step = Box::new(self.step(&session, payload, effects, check_mode));
        step.check()?;
        session.refuse_exposed(&step)?;
        Ok((session, step))
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
