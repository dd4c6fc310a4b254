//! Decides what runs when: readiness from the graph, limits in all, per target and per task.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::Arc,
    time::Instant,
};

use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;

use crate::execute::{
    Through,
    context::Context,
    node::{Finished, NodeRun},
    segment::{self, SegmentJob},
    settle::{Decision, Fate, decide},
    turns::Clocks,
};
use crate::{
    graph::{Node, NodeIndex, NodeKind, PlayIndex, TaskIndex},
    inventory::HostId,
    model::{EVENT_VERSION, EventKind, RunResult, Shown, Status},
    rollout::Turns,
};

pub(in crate::execute) struct Scheduler {
    pub(in crate::execute) context: Arc<Context>,
    /// Predecessors that have not ended yet.
    pub(in crate::execute) waiting: Vec<u32>,
    pub(in crate::execute) fates: Vec<Option<Fate>>,
    /// Nodes all of whose predecessors have ended.
    ready: VecDeque<NodeIndex>,
    /// Nodes that may run and wait for a free slot.
    queue: VecDeque<(NodeIndex, Vec<HostId>)>,
    running: JoinSet<()>,
    /// What each running task is about.
    started: HashMap<tokio::task::Id, Started>,
    /// Nodes that a running task has, and will run or hand back.
    pub(in crate::execute) claimed: Vec<bool>,
    /// What running tasks say of their nodes.
    sender: UnboundedSender<Finished>,
    receiver: UnboundedReceiver<Finished>,
    busy: Busy,
    /// Handlers that something changed has asked for, by play and host.
    notified: HashSet<Notice>,
    /// Handlers that are to run in an exec that has begun. Who notifies one of them has nothing more to ask for.
    promised: HashSet<Notice>,
    /// Plays that must not go on, with the node whose fault it is.
    aborted: HashMap<PlayIndex, NodeIndex>,
    lost_hosts: HashMap<PlayIndex, HashSet<HostId>>,
    /// Hosts that could not be reached, with the node that found out. Nothing more is tried on them.
    pub(in crate::execute) unreachable: HashMap<HostId, NodeIndex>,
    begun: HashSet<PlayIndex>,
    pub(in crate::execute) turns: Turns,
    pub(in crate::execute) clocks: Clocks,
    /// Gates that an earlier process has seen open, which must be seen to be so still.
    gates_to_repeat: HashSet<NodeIndex>,
    interrupted: bool,
    /// Nothing more starts, because nobody knows what a node did, or what more would do.
    halted: bool,
    result: RunResult,
}

/// One or more nodes on their way.
struct Started {
    nodes: Vec<(NodeIndex, Vec<HostId>)>,
    stop: CancellationToken,
}

/// What is running where.
#[derive(Default)]
struct Busy {
    targets: HashMap<HostId, usize>,
    tasks: HashMap<TaskIndex, usize>,
}

impl Scheduler {
    pub(in crate::execute) fn new(context: Arc<Context>) -> Self {
        let graph = context.graph.clone();
        let count = |index| u32::try_from(graph.predecessors(index).count()).unwrap_or(u32::MAX);
        let waiting: Vec<u32> = graph.indices().map(count).collect();
        let ready = graph.indices().filter(|index| waiting[index.index()] == 0).collect();
        let (sender, receiver) = unbounded_channel();
        let mut scheduler = Self {
            fates: vec![None; graph.len()],
            claimed: vec![false; graph.len()],
            sender,
            receiver,
            context,
            waiting,
            ready,
            queue: VecDeque::new(),
            running: JoinSet::new(),
            started: HashMap::new(),
            busy: Busy::default(),
            notified: HashSet::new(),
            promised: HashSet::new(),
            aborted: HashMap::new(),
            lost_hosts: HashMap::new(),
            unreachable: HashMap::new(),
            begun: HashSet::new(),
            turns: Turns::default(),
            clocks: Clocks::default(),
            gates_to_repeat: HashSet::new(),
            interrupted: false,
            halted: false,
            result: RunResult::Success,
        };
        scheduler.gates_to_repeat = scheduler.gates_to_repeat();
        scheduler
    }

    pub(in crate::execute) async fn run(mut self) -> Through {
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
        let (seconds, execs) = (started.elapsed().as_secs_f64(), self.context.fleet.execs());
        let plan = self.context.options.check_mode.then(|| self.context.options.predictions.counts());
        Through { result, seconds, execs, plan }
    }

    fn run_started(&self) {
        let graph = &self.context.graph;
        let hosts: HashSet<_> = graph.plays.iter().flat_map(|play| &play.hosts).collect();
        self.context.emitter.emit(EventKind::RunStarted {
            version: EVENT_VERSION,
            run: self.context.options.run_id.clone(),
            playbook: graph.playbook.clone(),
            nodes: graph.work().count().saturating_sub(self.context.recorder.done()),
            hosts: hosts.len(),
            check_mode: self.context.options.check_mode,
        });
    }

    async fn wait_for_one(&mut self) {
        tokio::select! {
            // Nodes that end because of an interrupt must not be taken for failures.
            biased;
            () = self.context.interrupt.wait(), if !self.interrupted => self.interrupt(),
            Some(finished) = self.receiver.recv() => {
                self.finished(finished);
                self.hear_all();
            }
            Some(ended) = self.running.join_next_with_id() => match ended {
                Ok((id, ())) => self.ended(id, None),
                Err(error) => self.ended(error.id(), Some(&error)),
            },
        }
    }

    fn interrupt(&mut self) {
        self.interrupted = true;
        self.context.emitter.emit(EventKind::Interrupted);
        self.started.values().for_each(|started| started.stop.cancel());
    }

    /// Results of one exec come together. What follows from each is decided before the next is heard: a handler that is flushed between
    /// two tasks must not know what the second of them notifies.
    fn hear_all(&mut self) {
        while let Ok(finished) = self.receiver.try_recv() {
            self.settle_ready();
            self.finished(finished);
        }
    }

    /// A running task has ended. What it did not run can be started again.
    fn ended(&mut self, id: tokio::task::Id, panic: Option<&tokio::task::JoinError>) {
        // It said all it had to say before it ended.
        self.hear_all();
        let Some(Started { nodes, .. }) = self.started.remove(&id) else { return };
        if let Some((first, _)) = nodes.first() {
            self.count(*first, false);
        }
        let mut left = nodes.into_iter().filter(|(index, _)| self.fates[index.index()].is_none()).collect::<Vec<_>>();
        // The first of them was to run in any case; of a task that panicked, it is the one that did.
        if let Some((index, hosts)) = left.first().filter(|(index, _)| panic.is_some() || !self.claimed[index.index()])
        {
            self.broke(*index, hosts.clone(), panic);
            left.remove(0);
        }
        left.into_iter().for_each(|(index, _)| self.give_back(index));
    }

    /// That is a bug; the run must still end, and say where it happened.
    fn broke(&mut self, index: NodeIndex, hosts: Vec<HostId>, panic: Option<&tokio::task::JoinError>) {
        let how = panic.map_or_else(|| "it ended without a result".to_owned(), ToString::to_string);
        let msg = format!("internal error in {}: {how}", self.context.graph.id(index));
        self.context.emitter.emit(EventKind::Warning { msg });
        self.finished(Finished::new(index, hosts, Status::Failed));
    }

    /// Decides about nodes whose predecessors have ended, until nothing more follows from that.
    fn settle_ready(&mut self) {
        while let Some(index) = self.ready.pop_front() {
            if self.claimed[index.index()] {
                continue;
            }
            let is_held = self.context.graph.node(index).kind.is_held();
            match self.decision(index) {
                Decision::End(fate) if is_held => self.held(index, fate),
                Decision::End(fate) => self.end(index, fate),
                Decision::Run(hosts) if self.is_done(index) => self.restore(index, hosts),
                Decision::Run(hosts) => self.queue.push_back((index, hosts)),
            }
        }
    }

    /// Nodes that were held back are asked about once more.
    pub(in crate::execute) fn ready_again(&mut self, nodes: Vec<NodeIndex>) {
        self.ready.extend(nodes);
    }

    /// Whether nothing more is started.
    pub(in crate::execute) fn gives_up(&self) -> bool {
        self.interrupted || self.halted
    }

    pub(in crate::execute) fn is_done(&self, index: NodeIndex) -> bool {
        !self.gates_to_repeat.contains(&index) && self.has_ended(index)
    }

    pub(in crate::execute) fn has_ended(&self, index: NodeIndex) -> bool {
        self.context.recorder.past(index.index()).is_some_and(|past| past.done.is_some())
    }

    pub(in crate::execute) fn was_skipped(&self, index: NodeIndex) -> bool {
        let past = self.context.recorder.past(index.index()).and_then(|past| past.done.as_ref());
        past.is_some_and(|done| done.status == Status::Skipped)
    }

    /// Takes over how the node ended in an earlier process.
    fn restore(&mut self, index: NodeIndex, hosts: Vec<HostId>) {
        let recorder = self.context.recorder.clone();
        let Some(done) = recorder.past(index.index()).and_then(|past| past.done.as_ref()) else { return };
        if let Some(node) = NodeRun::new(&self.context, index, hosts.clone()) {
            node.inherit(done);
        }
        self.finished(Finished::new(index, hosts, done.status));
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
            let Some(notice) = notice(&node) else { return Decision::Run(hosts) };
            if !self.notified.remove(&notice) {
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
            (Decision::End(fate), NodeKind::TurnStart(_) | NodeKind::Free(_)) => fate.status == Status::Ok,
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
        if self.interrupted || self.halted {
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
        let waiting = self.turns.give_up();
        self.ready_again(waiting);
        self.settle_ready();
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

    /// Starts the node, and with it those that can share its exec.
    fn start(&mut self, index: NodeIndex, hosts: Vec<HostId>) {
        self.count(index, true);
        let rest = self.chain(index).split_off(1);
        rest.iter().for_each(|index| self.claim(*index));
        let graph = &self.context.graph;
        let rest = rest.into_iter().map(|index| (index, graph.hosts_of(graph.node(index))));
        let nodes: Vec<_> = [(index, hosts)].into_iter().chain(rest).collect();
        let stop = CancellationToken::new();
        let task = self.running.spawn(segment::run(SegmentJob {
            context: self.context.clone(),
            nodes: nodes.clone(),
            stop: stop.clone(),
            finished: self.sender.clone(),
        }));
        self.started.insert(task.id(), Started { nodes, stop });
    }

    /// The node goes out with one that it waits for.
    fn claim(&mut self, index: NodeIndex) {
        self.claimed[index.index()] = true;
        if let Some(notice) = notice(self.context.graph.node(index)) {
            self.notified.remove(&notice);
            self.promised.insert(notice);
        }
    }

    /// It was not run after all.
    fn give_back(&mut self, index: NodeIndex) {
        if !std::mem::take(&mut self.claimed[index.index()]) {
            return;
        }
        if let Some(notice) = notice(self.context.graph.node(index)) {
            self.promised.remove(&notice);
            self.notified.insert(notice);
        }
        // It is there already if the result that it waited for came in with the end of the exec.
        if self.waiting[index.index()] == 0 && !self.ready.contains(&index) {
            self.ready.push_back(index);
        }
    }

    pub(in crate::execute) fn is_notified(&self, handler: &Node) -> bool {
        notice(handler).is_some_and(|notice| self.notified.contains(&notice))
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
        if let Some(halt) = finished.halts {
            self.halted = true;
            self.result = self.result.max(halt.result());
            self.started.values().for_each(|started| started.stop.cancel());
        }
        if finished.unknown || finished.status == Status::Changed {
            self.notify(&finished);
        }
        if finished.status == Status::Changed {
            self.clocks.changed.insert(self.context.graph.node(finished.index).play);
        }
        match finished.status {
            Status::Failed if finished.refused => self.lost(&finished, RunResult::GateRefused),
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
        let task = graph.task_of(finished.index).map_or_else(|| "".into(), |task| task.name.as_str().into());
        for handler in handlers.into_iter().flatten() {
            for notice in finished.hosts.iter().map(|host| (play, *host, *handler)) {
                // It is on its way.
                if self.promised.contains(&notice) {
                    continue;
                }
                // Whoever is notified for certain stays so.
                let is_first = self.notified.insert(notice);
                match finished.unknown {
                    true if is_first => self.context.foresight.may_notify(notice, &task),
                    true => {}
                    false => self.context.foresight.notifies(&notice),
                }
            }
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
            let waiting = self.turns.give_up();
            self.ready_again(waiting);
            self.stop_play(node.play);
        }
    }

    /// Lets nothing of the play start any more, except what an `always` tidies up.
    fn stop_play(&self, play: PlayIndex) {
        let graph = &self.context.graph;
        for started in self.started.values() {
            let first = started.nodes.first().map(|(index, _)| graph.node(*index));
            if first.is_some_and(|node| node.play == play && !node.always) {
                started.stop.cancel();
            }
        }
    }

    /// Ends a node that never ran, and says so if a person would miss it.
    pub(in crate::execute) fn end(&mut self, index: NodeIndex, fate: Fate) {
        if fate.status == Status::NotRun {
            self.not_run_event(index, fate);
        }
        self.end_quietly(index, fate);
    }

    fn not_run_event(&self, index: NodeIndex, fate: Fate) {
        let graph = &self.context.graph;
        let node = graph.node(index);
        let (Some(task), Some(host)) = (graph.task_of(index), node.host) else { return };
        // A handler that nothing notified would not have run anyway.
        if node.kind == NodeKind::Handler && !self.is_notified(node) {
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
        if let Some(notice) = notice(self.context.graph.node(index)).filter(|_| self.claimed[index.index()]) {
            self.promised.remove(&notice);
        }
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

/// How a handler is notified: by play, host and task.
pub(in crate::execute) type Notice = (PlayIndex, HostId, TaskIndex);

pub(in crate::execute) fn notice(node: &Node) -> Option<Notice> {
    (node.kind == NodeKind::Handler).then_some((node.play, node.host?, node.task?))
}

#[cfg(test)]
mod tests;
