//! Runs nodes of one target in one exec, and settles each as soon as it ends.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::{Arc, Mutex},
    time::Instant,
};

use tokio::sync::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;

use crate::execute::{
    Interrupt,
    context::Context,
    foresight::At,
    guard::ClusterGuard,
    items::Item,
    node::{Finished, NodeError, NodeRun},
    once::Sending,
    prepare::{Draft, Part, PartWork, Prepared},
    registered::lock,
};
use crate::{
    graph::NodeIndex,
    inventory::HostId,
    model::Outcome,
    remote::{RemoteError, Session, Step, StepSink},
};

/// What one exec is to do, and whom to tell.
pub(in crate::execute) struct SegmentJob {
    pub context: Arc<Context>,
    /// In the order they run in, with the hosts that each of them speaks for.
    pub nodes: Vec<(NodeIndex, Vec<HostId>)>,
    /// Once it is cancelled, no further node starts.
    pub stop: CancellationToken,
    pub finished: UnboundedSender<Finished>,
}

/// Runs as many of the nodes as fit together; each is reported when it has ended. The others were not touched.
pub(in crate::execute) async fn run(job: SegmentJob) {
    let SegmentJob { context, nodes, stop, finished } = job;
    let mut rest = nodes.into_iter();
    let Some((index, hosts)) = rest.next() else { return };
    let Some(first) = NodeRun::new(&context, index, hosts) else { return };
    let begun = first.begin();
    let mut draft = Draft::default();
    // By itself, each item of a loop is worked out when the one before it has ended, and fails by itself.
    let is_lone_loop = rest.len() == 0 && first.task.loops.is_some();
    let alone = match first.needs_operator() || is_lone_loop {
        true => Some(first),
        false => draft.add(first).err().map(|first| *first),
    };
    if let Some(run) = alone {
        let result = run.alone().await;
        // The scheduler outlives what it started.
        let _ = finished.send(run.finish(result, begun));
        return;
    }
    let mut runs = rest.filter_map(|(index, hosts)| NodeRun::new(&context, index, hosts));
    while !draft.closed && runs.next().is_some_and(|run| draft.add(run).is_ok()) {}
    go(draft, begun, &stop, finished).await;
}

async fn go(draft: Draft, begun: Instant, stop: &CancellationToken, finished: UnboundedSender<Finished>) {
    let Draft { nodes, steps, session, watched, .. } = draft;
    let (locked, unready) = match make_ready(&nodes, &watched, stop).await {
        Ok(locked) => (locked, None),
        Err(trouble) => (None, Some(trouble)),
    };
    let interrupt = nodes.front().map(|node| node.run.context.interrupt.clone()).unwrap_or_default();
    let course = SegmentProgress { nodes, begun: Some(begun), halted: false, steps_ended: 0, finished };
    let course = Live(Mutex::new(course));
    lock(&course.0).settle_known();
    let result = match (session, unready) {
        (Some(_), Some(trouble)) => Err(trouble),
        (Some(session), None) => {
            let sent = send(&session, steps, &course, stop, &interrupt).await;
            sent.map_err(|error| lock(&course.0).as_member_lost(error.into()))
        }
        (None, _) => Ok(()),
    };
    lock(&course.0).end(result);
    drop(locked);
}

/// Waits for its turn where it may harm members, and lets each node pass what it has to before it may change something, all at
/// once.
async fn make_ready(
    nodes: &VecDeque<Prepared>,
    watched: &BTreeSet<String>,
    stop: &CancellationToken,
) -> Result<Option<ClusterGuard>, NodeError> {
    let Some(run) = nodes.front().map(|node| &node.run) else { return Ok(None) };
    if let Some(absent) = run.context.foresight.is_absent(&run.who()) {
        return Err(absent);
    }
    let locked = run.context.guard.lock_clusters(watched).await?;
    // Whatever the one before it has found, nothing starts any more.
    if !watched.is_empty() && stop.is_cancelled() {
        return Err(NodeError::Interrupted);
    }
    let changes = nodes.iter().flat_map(|node| node.changes().map(|at| (&node.run, at)));
    let admissions = changes.map(|(run, at)| run.admit(at, || run.scope(run.host, None)));
    futures_util::future::try_join_all(admissions).await?;
    Ok(Some(locked))
}

/// Sends the steps; those that have not ended once more if the connection is lost.
async fn send(
    session: &Session,
    steps: Vec<Step>,
    course: &Live,
    stop: &CancellationToken,
    interrupt: &Interrupt,
) -> Result<(), RemoteError> {
    let lost = |sending: &mut Sending, error: &RemoteError| lock(&course.0).lose(sending, error);
    Sending::new(steps).go(session, course, stop, interrupt, lost).await
}

/// Where the segment stands. Nodes leave it when they have ended.
struct SegmentProgress {
    nodes: VecDeque<Prepared>,
    /// When the first of them started, if it has.
    begun: Option<Instant>,
    /// A node failed, and nothing behind it runs.
    halted: bool,
    /// Of the steps that were sent last.
    steps_ended: usize,
    finished: UnboundedSender<Finished>,
}

impl SegmentProgress {
    /// Starts the first node, unless it has started.
    fn begin(&mut self) -> Instant {
        let begin = || self.nodes.front().map_or_else(Instant::now, |node| node.run.begin());
        *self.begun.get_or_insert_with(begin)
    }

    /// Settles what needs no step, up to the next part that does.
    fn settle_known(&mut self) {
        while !self.halted {
            let Some(node) = self.nodes.front_mut() else { return };
            match node.parts.pop_front() {
                Some(Part { item, work: PartWork::Known(known) }) => {
                    self.begin();
                    self.part_ended(item, known.at.as_ref(), known.result);
                }
                Some(awaited) => return node.parts.push_front(awaited),
                // A loop over nothing.
                None => self.node_ended(None),
            }
        }
    }

    /// The connection is gone. How many steps had ended, if the others may be sent again.
    fn lose(&mut self, sending: &mut Sending, error: &RemoteError) -> Option<usize> {
        let ended = std::mem::take(&mut self.steps_ended);
        let node = self.nodes.front().filter(|_| !self.halted).map(|node| &node.run)?;
        node.may_go_again(sending, error).then_some(ended)
    }

    fn step_ended(&mut self, outcome: Outcome) {
        self.steps_ended += 1;
        let Some(part) = self.nodes.front_mut().and_then(|node| node.parts.pop_front()) else { return };
        let Some(run) = self.nodes.front().map(|node| &node.run) else { return };
        let result = run.known(outcome);
        let (at, result) = match &part.work {
            PartWork::Awaited { at, watched: true, .. } => (Some(at), result.map_err(|it| run.as_member_lost(it))),
            PartWork::Awaited { at, .. } => (Some(at), result),
            PartWork::Known(known) => (known.at.as_ref(), result),
        };
        self.part_ended(part.item, at, result);
        self.settle_known();
    }

    fn part_ended(&mut self, item: Option<Item>, at: Option<&At>, result: Result<Outcome, NodeError>) {
        let Some(Prepared { run, parts, gathered, .. }) = self.nodes.front_mut() else { return };
        let result = run.foresee(at, result).and_then(|outcome| run.judged_later(item.as_ref(), outcome));
        let ended = match item {
            None => Some(Some(result)),
            Some(item) => match run.gather(gathered, item, result) {
                Err(trouble) => Some(Some(Err(trouble))),
                Ok(()) => parts.is_empty().then_some(None),
            },
        };
        if let Some(result) = ended {
            self.node_ended(result);
        }
    }

    /// The result of the first node; `None` for that of its items.
    fn node_ended(&mut self, result: Option<Result<Outcome, NodeError>>) {
        let begun = self.begin();
        let Some(Prepared { run, gathered, parts, .. }) = self.nodes.pop_front() else { return };
        self.begun = None;
        let missing = (!parts.is_empty()).then(|| gathered.len() + parts.len());
        let result = result.unwrap_or_else(|| Ok(run.all_items(gathered, missing)));
        let finished = run.finish(result, begun);
        self.halted = !finished.status.satisfies();
        // The scheduler outlives what it started.
        let _ = self.finished.send(finished);
    }

    /// Nothing more comes from the target. What ended is settled; what was under way is in the error's hands.
    fn end(&mut self, result: Result<(), NodeError>) {
        let is_known = result.is_ok();
        self.end_first(result);
        if is_known {
            self.nodes
                .iter()
                .filter(|node| node.changes().next().is_some())
                .for_each(|node| node.run.once.not_started());
        }
    }

    /// What was sent and not heard of again may have run, all of it.
    fn as_member_lost(&self, trouble: NodeError) -> NodeError {
        let parts = self.nodes.iter().flat_map(|node| &node.parts);
        let is_watched = parts.into_iter().any(|part| matches!(part.work, PartWork::Awaited { watched: true, .. }));
        match self.nodes.front().filter(|_| is_watched) {
            Some(node) => node.run.as_member_lost(trouble),
            None => trouble,
        }
    }

    fn end_first(&mut self, result: Result<(), NodeError>) {
        let Some(node) = self.nodes.front().filter(|_| !self.halted) else { return };
        match result {
            // Even if we did not see it begin: it may have.
            Err(error) => {
                let at = node.parts.front().and_then(|part| match &part.work {
                    PartWork::Awaited { at, .. } => Some(at),
                    PartWork::Known(_) => None,
                });
                let result = node.run.foresee(at, Err(error));
                self.node_ended(Some(result));
            }
            Ok(()) if self.begun.is_none() => {}
            // It was stopped between two items.
            Ok(()) if node.run.task.loops.is_some() => self.node_ended(None),
            Ok(()) => self.node_ended(Some(Err(NodeError::failed("the target sent no result")))),
        }
    }
}

/// Hears of steps as they run.
struct Live(Mutex<SegmentProgress>);

impl StepSink for Live {
    fn started(&self, _: usize) {
        lock(&self.0).begin();
    }

    fn output(&self, _: usize, stderr: bool, text: &[u8]) {
        if let Some(node) = lock(&self.0).nodes.front() {
            node.run.live(stderr, text);
        }
    }

    fn finished(&self, _: usize, outcome: &Outcome) {
        lock(&self.0).step_ended(outcome.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        execute::once::Halt,
        model::{Ending, Status},
        testing::{FLEET, inventory, run},
    };

    /// A command on m1 of which the host has said nothing yet.
    fn under_way() -> (SegmentProgress, Arc<Context>, tokio::sync::mpsc::UnboundedReceiver<Finished>) {
        let (run, _) = run(&inventory(FLEET), "- hosts: m1\n  tasks:\n    - command: { argv: [reboot] }\n");
        let context = Arc::new(Context::new(run));
        let index = context.graph.work().next().unwrap();
        let hosts = vec![context.graph.node(index).host.unwrap()];
        let mut draft = Draft::default();
        assert!(draft.add(NodeRun::new(&context, index, hosts).unwrap()).is_ok());
        assert_eq!(draft.watched, BTreeSet::from(["prod".to_owned()]));
        let (finished, events) = tokio::sync::mpsc::unbounded_channel();
        (SegmentProgress { nodes: draft.nodes, begun: None, halted: false, steps_ended: 0, finished }, context, events)
    }

    async fn is_withheld(context: &Context) -> bool {
        let prod = BTreeSet::from(["prod".to_owned()]);
        matches!(context.guard.lock_clusters(&prod).await, Err(NodeError::Halted(Halt::Withheld, ..)))
    }

    #[tokio::test]
    async fn a_command_in_doubt_keeps_others_from_the_same_cluster() {
        let (mut course, context, mut events) = under_way();
        course.step_ended(Outcome { ending: Ending::InDoubt, ..Outcome::failed("another boot") });
        let finished = events.try_recv().unwrap();
        assert_eq!((finished.status, finished.halts), (Status::Failed, Some(Halt::InDoubt)));
        assert!(is_withheld(&context).await);
    }

    #[tokio::test]
    async fn a_command_that_nobody_saw_end_keeps_others_from_the_same_cluster() {
        let (mut course, context, mut events) = under_way();
        let trouble = course.as_member_lost(RemoteError::Lost("gone".into()).into());
        course.end(Err(trouble));
        assert_eq!(events.try_recv().unwrap().halts, Some(Halt::MemberLost));
        assert!(is_withheld(&context).await);
    }

    #[tokio::test]
    async fn a_command_that_fails_keeps_nobody() {
        let (mut course, context, mut events) = under_way();
        course.step_ended(Outcome::failed("exit code 1"));
        assert_eq!(events.try_recv().unwrap().halts, None);
        assert!(!is_withheld(&context).await);
    }

    #[tokio::test]
    async fn what_waited_for_a_cluster_does_not_start_in_a_run_that_ends() {
        let (course, _, _) = under_way();
        let stop = CancellationToken::new();
        let prod = BTreeSet::from(["prod".to_owned()]);
        assert!(make_ready(&course.nodes, &prod, &stop).await.is_ok());
        stop.cancel();
        assert!(matches!(make_ready(&course.nodes, &prod, &stop).await, Err(NodeError::Interrupted)));
    }
}
