//! Decides what runs when: readiness from the graph, limits in all, per target and per task.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use tokio::task::JoinSet;

use super::{
    context::Context,
    node::{self, Finished},
    settle::{Decision, Fate, decide},
};
use crate::{
    graph::{NodeIndex, NodeKind, PlayIndex, TaskIndex},
    inventory::HostId,
    model::{EVENT_VERSION, EventKind, RunResult, Shown, Status},
};

pub(super) struct Scheduler {
    context: Arc<Context>,
    /// Predecessors that have not ended yet.
    waiting: Vec<u32>,
    fates: Vec<Option<Fate>>,
    /// Nodes all of whose predecessors have ended.
    ready: VecDeque<NodeIndex>,
    /// Nodes that may run and wait for a free slot.
    queue: VecDeque<(NodeIndex, Vec<HostId>)>,
    running: JoinSet<Finished>,
    /// What each running task is about, should it end without a word.
    started: HashMap<tokio::task::Id, (NodeIndex, Vec<HostId>)>,
    busy: Busy,
    /// Handlers that something changed has asked for, by play and host.
    notified: HashSet<(PlayIndex, HostId, TaskIndex)>,
    /// Plays that must not go on, with the node whose fault it is.
    aborted: HashMap<PlayIndex, NodeIndex>,
    lost_hosts: HashMap<PlayIndex, HashSet<HostId>>,
    /// Hosts that could not be reached, with the node that found out. Nothing more is tried on them.
    unreachable: HashMap<HostId, NodeIndex>,
    begun: HashSet<PlayIndex>,
    interrupted: bool,
    result: RunResult,
}

/// What is running where.
#[derive(Default)]
struct Busy {
    targets: HashMap<HostId, usize>,
    tasks: HashMap<TaskIndex, usize>,
}

impl Scheduler {
    pub(super) fn new(context: Arc<Context>) -> Self {
        let graph = context.graph.clone();
        let count = |index| u32::try_from(graph.predecessors(index).count()).unwrap_or(u32::MAX);
        let waiting: Vec<u32> = graph.indices().map(count).collect();
        let ready = graph.indices().filter(|index| waiting[index.index()] == 0).collect();
        Self {
            fates: vec![None; graph.len()],
            context,
            waiting,
            ready,
            queue: VecDeque::new(),
            running: JoinSet::new(),
            started: HashMap::new(),
            busy: Busy::default(),
            notified: HashSet::new(),
            aborted: HashMap::new(),
            lost_hosts: HashMap::new(),
            unreachable: HashMap::new(),
            begun: HashSet::new(),
            interrupted: false,
            result: RunResult::Success,
        }
    }

    pub(super) async fn run(mut self) -> RunResult {
        let started = Instant::now();
        self.run_started();
        loop {
            self.settle_ready();
            self.start_queued();
            if self.running.is_empty() {
                break;
            }
            self.wait_for_one().await;
        }
        let result = if self.interrupted { RunResult::Interrupted } else { self.result };
        let run = self.context.options.run_id.clone();
        self.context.emitter.emit(EventKind::RunFinished { run, seconds: started.elapsed().as_secs_f64(), result });
        result
    }

    fn run_started(&self) {
        let graph = &self.context.graph;
        let hosts: HashSet<_> = graph.plays.iter().flat_map(|play| &play.hosts).collect();
        self.context.emitter.emit(EventKind::RunStarted {
            version: EVENT_VERSION,
            run: self.context.options.run_id.clone(),
            playbook: graph.playbook.clone(),
            nodes: graph.work().count(),
            hosts: hosts.len(),
            check_mode: self.context.options.check_mode,
        });
    }

    async fn wait_for_one(&mut self) {
        let finished = if self.interrupted {
            self.running.join_next_with_id().await
        } else {
            tokio::select! {
                finished = self.running.join_next_with_id() => finished,
                () = self.context.interrupt.wait() => {
                    self.interrupted = true;
                    self.context.emitter.emit(EventKind::Interrupted);
                    return;
                }
            }
        };
        match finished {
            Some(Ok((id, finished))) => {
                self.started.remove(&id);
                self.finished(finished);
            }
            Some(Err(error)) => self.panicked(&error),
            None => {}
        }
    }

    /// A panic in a node is a bug; the run must still end, and say where it happened.
    fn panicked(&mut self, error: &tokio::task::JoinError) {
        let Some((index, hosts)) = self.started.remove(&error.id()) else { return };
        let msg = format!("internal error in {}: {error}", self.context.graph.id(index));
        self.context.emitter.emit(EventKind::Warning { msg });
        self.finished(Finished { index, hosts, status: Status::Failed, changed: false });
    }

    /// Decides about nodes whose predecessors have ended, until nothing more follows from that.
    fn settle_ready(&mut self) {
        while let Some(index) = self.ready.pop_front() {
            match self.decision(index) {
                Decision::End(fate) => self.end(index, fate),
                Decision::Run(hosts) => self.queue.push_back((index, hosts)),
            }
        }
    }

    fn decision(&mut self, index: NodeIndex) -> Decision {
        let node = *self.context.graph.node(index);
        self.note_play(node.play, node.kind);
        let decision = decide(&self.context.graph, &self.fates, index);
        let Decision::Run(mut hosts) = decision else { return self.unless_aborted(index, decision) };
        let gone = hosts.iter().find_map(|host| self.unreachable.get(host).copied());
        hosts.retain(|host| !self.unreachable.contains_key(host));
        if let (Some(cause), true) = (gone, hosts.is_empty()) {
            return Decision::End(Fate { status: Status::NotRun, cause: Some(cause) });
        }
        if node.kind == NodeKind::Handler {
            let (Some(task), Some(host)) = (node.task, node.host) else { return Decision::Run(hosts) };
            if !self.notified.remove(&(node.play, host, task)) {
                return Decision::End(Fate::new(Status::Skipped));
            }
        }
        self.unless_aborted(index, Decision::Run(hosts))
    }

    /// A play that was given up starts nothing more, and neither do the plays behind it.
    fn unless_aborted(&self, index: NodeIndex, decision: Decision) -> Decision {
        let node = self.context.graph.node(index);
        // What an `always` tidies up is tidied up even then.
        let Some(&cause) = self.aborted.get(&node.play).filter(|_| !node.always) else { return decision };
        let stops = match (&decision, node.kind) {
            (Decision::Run(_), _) => true,
            (Decision::End(fate), NodeKind::BatchEnd | NodeKind::BlockStart) => fate.status == Status::Ok,
            _ => false,
        };
        if stops { Decision::End(Fate { status: Status::NotRun, cause: Some(cause) }) } else { decision }
    }

    fn note_play(&mut self, play: PlayIndex, kind: NodeKind) {
        if kind == NodeKind::PlayStart && self.begun.insert(play) {
            let info = self.context.graph.play(play);
            self.context.emitter.emit(EventKind::PlayStarted { play: info.name.clone(), hosts: info.hosts.len() });
        }
    }

    fn start_queued(&mut self) {
        if self.interrupted {
            return self.give_up_queue();
        }
        let mut blocked = Vec::new();
        while self.running.len() < self.context.options.forks.max(1) {
            let Some((index, hosts)) = self.queue.pop_front() else { break };
            if let Decision::End(fate) = self.unless_aborted(index, Decision::Run(Vec::new())) {
                self.end(index, fate);
            } else if self.has_slot(index) {
                self.start(index, hosts);
            } else {
                blocked.push((index, hosts));
            }
        }
        blocked.into_iter().rev().for_each(|waiting| self.queue.push_front(waiting));
        if !self.ready.is_empty() {
            self.settle_ready();
        }
    }

    fn give_up_queue(&mut self) {
        while let Some((index, _)) = self.queue.pop_front() {
            self.end(index, Fate::new(Status::NotRun));
            self.settle_ready();
        }
    }

    fn has_slot(&self, index: NodeIndex) -> bool {
        let node = self.context.graph.node(index);
        let target_free = node
            .target
            .or(node.host)
            .is_none_or(|target| self.busy.targets.get(&target).is_none_or(|n| *n < self.context.options.per_host));
        let throttle = self.context.graph.task_of(index).and_then(|task| task.throttle);
        let task_free = match (throttle, node.task) {
            (Some(limit), Some(task)) => self.busy.tasks.get(&task).is_none_or(|n| *n < limit),
            _ => true,
        };
        target_free && task_free
    }

    fn start(&mut self, index: NodeIndex, hosts: Vec<HostId>) {
        self.count(index, true);
        let task = self.running.spawn(node::run(self.context.clone(), index, hosts.clone()));
        self.started.insert(task.id(), (index, hosts));
    }

    fn count(&mut self, index: NodeIndex, up: bool) {
        let node = self.context.graph.node(index);
        let step = |count: &mut usize| *count = if up { *count + 1 } else { count.saturating_sub(1) };
        if let Some(target) = node.target.or(node.host) {
            step(self.busy.targets.entry(target).or_default());
        }
        if let Some(task) = node.task {
            step(self.busy.tasks.entry(task).or_default());
        }
    }

    fn finished(&mut self, finished: Finished) {
        self.count(finished.index, false);
        if finished.changed && finished.status == Status::Changed {
            self.notify(&finished);
        }
        match finished.status {
            Status::Failed => self.lost(&finished, RunResult::Failed),
            Status::Unreachable => {
                self.unreachable.extend(finished.hosts.iter().map(|host| (*host, finished.index)));
                self.lost(&finished, RunResult::Unreachable);
            }
            _ => {}
        }
        self.end_quietly(finished.index, Fate::new(finished.status));
    }

    /// Marks the handlers that the task names, for each host it ran for.
    fn notify(&mut self, finished: &Finished) {
        let graph = self.context.graph.clone();
        let play = graph.node(finished.index).play;
        let handlers = graph.node(finished.index).task.and_then(|task| graph.notifies.get(&task));
        for handler in handlers.into_iter().flatten() {
            self.notified.extend(finished.hosts.iter().map(|host| (play, *host, *handler)));
        }
    }

    /// A host is lost to its play; that may end the play.
    fn lost(&mut self, finished: &Finished, result: RunResult) {
        self.result = self.result.max(result);
        let graph = self.context.graph.clone();
        let node = graph.node(finished.index);
        let play = graph.play(node.play);
        let lost = self.lost_hosts.entry(node.play).or_default();
        lost.extend(&finished.hosts);
        let fatal = play.any_errors_fatal || graph.task_of(finished.index).is_some_and(|task| task.any_errors_fatal);
        let batch = play.batches.get(node.batch as usize).map_or(&[][..], Vec::as_slice);
        let lost_here = batch.iter().filter(|host| lost.contains(host)).count();
        #[expect(clippy::cast_precision_loss, reason = "host counts are small")]
        let share = lost_here as f64 * 100.0 / batch.len().max(1) as f64;
        if fatal || play.max_fail_percentage.is_some_and(|limit| share > limit) {
            self.aborted.entry(node.play).or_insert(finished.index);
        }
    }

    /// Ends a node that never ran, and says so if a person would miss it.
    fn end(&mut self, index: NodeIndex, fate: Fate) {
        if fate.status == Status::NotRun {
            self.not_run_event(index, fate);
        }
        self.end_quietly(index, fate);
    }

    fn not_run_event(&self, index: NodeIndex, fate: Fate) {
        let graph = &self.context.graph;
        let node = graph.node(index);
        // A handler that nothing notified would not have run anyway.
        let notified = |host, task| self.notified.contains(&(node.play, host, task));
        let (Some(task), Some(host), Some(task_index)) = (graph.task_of(index), node.host, node.task) else { return };
        if node.kind == NodeKind::Handler && !notified(host, task_index) {
            return;
        }
        let rescued =
            fate.cause.and_then(|cause| self.fates[cause.index()]).is_some_and(|f| f.status == Status::Rescued);
        // What a rescue stands in for is not missed.
        let (status, msg) = if rescued { (Status::Skipped, "the block is rescued") } else { (Status::NotRun, "") };
        self.context.emitter.emit(EventKind::NodeFinished {
            node: self.context.info(index, host, task),
            status,
            seconds: 0.0,
            result: Shown { msg: msg.to_owned(), ..Shown::default() },
            hint: None,
            because: fate.cause.map(|cause| graph.id(cause).into()),
        });
    }

    fn end_quietly(&mut self, index: NodeIndex, fate: Fate) {
        self.fates[index.index()] = Some(fate);
        let graph = self.context.graph.clone();
        for (successor, _) in graph.successors(index) {
            let waiting = &mut self.waiting[successor.index()];
            *waiting -= 1;
            if *waiting == 0 {
                self.ready.push_back(successor);
            }
        }
    }
}
