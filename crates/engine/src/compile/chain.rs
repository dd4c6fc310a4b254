//! The chain of tasks of every host, and what ties chains together.
//!
//! Inside a host, tasks follow each other. Hosts are free of each other but for play starts,
//! batches, shared nodes and `needs`. All hosts of a batch are built in step, so that a node which
//! several of them share stands at the right place in each of their chains.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use indexmap::IndexSet;

use super::{
    batches::batches,
    names::ValueNeed,
    needs,
    rollout::{Variant, groups},
    selection::Selection,
};
use crate::{
    graph::{
        BlockParts, EdgeKind, Graph, Node, NodeIndex, NodeKind, PlayIndex, PlayInfo, Reason, SharedLane, TaskIndex,
        TaskInfo,
    },
    inventory::{HostId, HostKind, Inventory},
    playbook::{Block, Item, On, OncePer, Play, Playbook, Task, TurnsOf},
    source::{Diagnostic, Diagnostics, Vars, did_you_mean},
};

/// What the next node of a host must wait for.
pub(super) type Tips = Vec<(NodeIndex, EdgeKind)>;

/// One host of the batch being built.
#[derive(Clone)]
pub(super) struct Lane {
    pub host: HostId,
    pub tips: Tips,
    /// Inside a rescue, or a step of a rollout: the gate that opens it. Every node of the part hangs on it.
    pub branch: Option<NodeIndex>,
}

impl Lane {
    pub fn waits_for(&self) -> Tips {
        let branch = self.branch.map(|gate| (gate, EdgeKind::Branch));
        self.tips.iter().copied().chain(branch).collect()
    }
}

pub(super) struct Builder {
    pub(super) graph: Graph,
    selection: Selection,
    started: bool,
    /// Where each host's chain ended in the plays so far.
    ends: HashMap<HostId, Tips>,
    /// The end of the play before.
    previous_end: Option<NodeIndex>,
    task_indices: HashMap<*const Task, TaskIndex>,
    facts_gathered: HashSet<HostId>,
    rounds: HashMap<(TaskIndex, HostId), u16>,
    /// Tasks as they are in a step of a rollout.
    pub(super) variants: HashMap<(*const Task, *const Vars), Arc<Task>>,
}

/// What holds while the items of one batch are built.
#[derive(Clone)]
pub(super) struct Batch<'p> {
    pub inventory: &'p Inventory,
    pub play: &'p Play,
    pub turns: TurnsOf,
    pub index: PlayIndex,
    pub number: u32,
    pub lanes: Vec<Lane>,
    /// Handlers that something since the last flush may have notified.
    pub pending: IndexSet<usize>,
    /// How many enclosing blocks would rescue a failure.
    pub rescues: usize,
    /// How many enclosing parts are an `always`.
    pub always: usize,
    /// The step of a rollout that it is in.
    pub variant: Option<Variant>,
    /// How often the same tasks came before in that step.
    pub round: u16,
    /// What is being built does not ask for tags.
    pub forced: bool,
}

impl<'p> Batch<'p> {
    fn new(
        inventory: &'p Inventory,
        play: &'p Play,
        turns: TurnsOf,
        index: PlayIndex,
        number: u32,
        lanes: Vec<Lane>,
    ) -> Self {
        let (pending, rescues, always, variant, round, forced) = Default::default();
        Self { inventory, play, turns, index, number, lanes, pending, rescues, always, variant, round, forced }
    }
}

impl Builder {
    pub(super) fn new(inventory: &Inventory, playbook: &Playbook, selection: Selection) -> Self {
        let started = selection.start_at.is_none();
        let hosts = inventory.hosts().map(|host| host.name.clone()).collect();
        let (playbook, library) = (playbook.path.display().to_string(), playbook.library);
        let graph = Graph { playbook, library, hosts, ..Graph::default() };
        Self {
            graph,
            selection,
            started,
            ends: HashMap::new(),
            previous_end: None,
            task_indices: HashMap::new(),
            facts_gathered: HashSet::new(),
            rounds: HashMap::new(),
            variants: HashMap::new(),
        }
    }

    pub(super) fn finish(
        mut self,
        inventory: &Inventory,
        values: &[ValueNeed],
        diagnostics: &mut Diagnostics,
    ) -> Graph {
        needs::connect(&mut self.graph, inventory, diagnostics);
        needs::connect_values(&mut self.graph, values);
        self.graph
    }

    /// `--start-at-task` with a name that no task has would quietly do nothing.
    pub(super) fn missing_start(&self, playbook: &Playbook) -> Option<Diagnostic> {
        let wanted = self.selection.start_at.as_ref().filter(|_| !self.started)?;
        let names: Vec<_> = playbook
            .plays
            .iter()
            .flat_map(|play| play.tasks(TurnsOf::default()))
            .map(|task| task.name.as_str())
            .collect();
        let near = did_you_mean(wanted, names);
        Some(Diagnostic::error(None, format!("no task is called `{wanted}`, to start at")).maybe_help(near))
    }

    /// Adds a play. `facts` is the task that gathers them, if a template of the play reads any.
    pub(super) fn play(
        &mut self,
        inventory: &Inventory,
        play: &Play,
        turns: TurnsOf,
        hosts: Vec<HostId>,
        facts: Option<&Arc<Task>>,
    ) {
        let index = PlayIndex(u32::try_from(self.graph.plays.len()).unwrap_or(u32::MAX));
        let batches = match &play.rollout {
            Some(_) => groups(inventory, &hosts),
            None => batches(&hosts, &play.serial),
        };
        let start = self.play_start(index);
        let mut before = start;
        let mut rolled = Vec::new();
        for (number, hosts) in batches.iter().enumerate() {
            let number = u32::try_from(number).unwrap_or(u32::MAX);
            let lanes = hosts.iter().map(|host| self.lane(*host, before)).collect();
            let mut batch = Batch::new(inventory, play, turns, index, number, lanes);
            if let Some(task) = facts {
                self.gather_facts(&mut batch, task);
            }
            match &play.rollout {
                None => {
                    self.batch(&mut batch);
                    before = self.batch_end(&batch);
                }
                Some(rollout) => {
                    self.rollout(&mut batch, rollout);
                    rolled.extend(batch.lanes);
                }
            }
        }
        if play.rollout.is_some() {
            before = self.batch_end(&Batch::new(inventory, play, turns, index, 0, rolled));
        }
        self.previous_end = Some(before);
        let name: Arc<str> = play.name.as_str().into();
        let same = self.graph.plays.iter().filter(|other| other.name == name).count();
        let id = if same == 0 { name.clone() } else { format!("{name}#{}", same + 1).into() };
        self.graph.plays.push(PlayInfo {
            name,
            id,
            span: play.span,
            hosts,
            batches,
            serial: play.serial.clone(),
            // Turns without gates keep no quorum.
            rolls: play.rollout.as_ref().is_some_and(|rollout| rollout.settings.strategy.is_etcd()),
            any_errors_fatal: play.any_errors_fatal,
            max_fail_percentage: play.max_fail_percentage,
            vars: play.vars.clone(),
            vars_files: play.vars_files.clone(),
        });
    }

    /// One virtual node between two plays, instead of an edge for every pair of hosts.
    fn play_start(&mut self, index: PlayIndex) -> NodeIndex {
        let start = self.graph.add(virtual_node(NodeKind::PlayStart, index, 0));
        if let Some(previous) = self.previous_end {
            self.graph.edge(previous, start, EdgeKind::Success, Reason::Play);
        }
        start
    }

    fn lane(&mut self, host: HostId, before: NodeIndex) -> Lane {
        let mut tips = vec![(before, EdgeKind::Success)];
        // A host that failed in an earlier play takes no part in later ones.
        tips.extend(self.ends.get(&host).into_iter().flatten().copied());
        Lane { host, tips, branch: None }
    }

    fn batch(&mut self, batch: &mut Batch<'_>) {
        self.sections(batch);
        self.note_ends(batch);
    }

    /// All that the play itself does.
    pub(super) fn sections(&mut self, batch: &mut Batch<'_>) {
        for section in &batch.play.sections {
            self.items(batch, &section.items);
            // Roles and tasks are one stretch in Ansible; handlers run behind both.
            if section.name != "roles" {
                self.flush(batch);
            }
        }
        self.flush(batch);
    }

    pub(super) fn note_ends(&mut self, batch: &Batch<'_>) {
        for lane in &batch.lanes {
            self.ends.insert(lane.host, lane.tips.clone());
        }
    }

    fn batch_end(&mut self, batch: &Batch<'_>) -> NodeIndex {
        let end = self.graph.add(virtual_node(NodeKind::BatchEnd, batch.index, batch.number));
        for lane in &batch.lanes {
            for (tip, _) in &lane.tips {
                self.graph.edge(*tip, end, EdgeKind::Always, Reason::Batch);
            }
        }
        end
    }

    /// Facts are gathered where a template of the play reads them, once per host.
    fn gather_facts(&mut self, batch: &mut Batch<'_>, task: &Arc<Task>) {
        let all = std::mem::take(&mut batch.lanes);
        let (fresh, done): (Vec<_>, Vec<_>) = all.into_iter().partition(|lane| self.facts_gathered.insert(lane.host));
        batch.lanes = fresh;
        self.place(batch, task);
        batch.lanes.extend(done);
        batch.lanes.sort_by_key(|lane| lane.host);
    }

    pub(super) fn items(&mut self, batch: &mut Batch<'_>, items: &[Item]) {
        for item in items {
            match item {
                Item::Task(task) => self.task(batch, task),
                Item::Block(block) => self.block(batch, block),
                Item::FlushHandlers(_) => self.flush(batch),
            }
        }
    }

    fn task(&mut self, batch: &mut Batch<'_>, task: &Arc<Task>) {
        self.started = self.started || self.selection.starts_at(task);
        if batch.forced || (self.started && self.selection.wants(task)) {
            self.place(batch, task);
            self.note_notified(batch, task);
        }
    }

    fn note_notified(&mut self, batch: &mut Batch<'_>, task: &Arc<Task>) {
        let from = self.variant(batch, task);
        let from = self.task_index(&from, batch.index);
        for name in &task.notify {
            for handler in batch.play.handlers_for(name) {
                let position = batch.play.handlers.iter().position(|other| Arc::ptr_eq(other, handler));
                batch.pending.extend(position);
                let handler = self.variant(batch, handler);
                let to = self.task_index(&handler, batch.index);
                let notified = self.graph.notifies.entry(from).or_default();
                if !notified.contains(&to) {
                    notified.push(to);
                }
            }
        }
    }

    pub(super) fn place(&mut self, batch: &mut Batch<'_>, task: &Arc<Task>) {
        let task = &self.variant(batch, task);
        let groups = sharing_groups(batch, task);
        let index = self.task_index(task, batch.index);
        match groups {
            None => (0..batch.lanes.len()).for_each(|lane| self.single(batch, index, task, lane)),
            Some(groups) => groups.iter().for_each(|lanes| self.shared(batch, index, task, lanes)),
        }
    }

    fn task_index(&mut self, task: &Arc<Task>, play: PlayIndex) -> TaskIndex {
        let next = TaskIndex(u32::try_from(self.graph.tasks.len()).unwrap_or(u32::MAX));
        let index = *self.task_indices.entry(Arc::as_ptr(task)).or_insert(next);
        if index == next {
            self.graph.tasks.push(TaskInfo { task: task.clone(), play });
        }
        index
    }

    fn single(&mut self, batch: &mut Batch<'_>, index: TaskIndex, task: &Task, lane: usize) {
        let host = batch.lanes[lane].host;
        let node = self.graph.add(Node {
            kind: NodeKind::Task,
            task: Some(index),
            host: Some(host),
            target: static_target(batch.inventory, task, host),
            rescued: batch.rescues > 0,
            always: batch.always > 0,
            round: batch.round,
            ..virtual_node(NodeKind::Task, batch.index, batch.number)
        });
        self.follow(&mut batch.lanes[lane], node, Reason::Order);
    }

    /// One node for several lanes: it waits for all of them, and each goes on after it.
    fn shared(&mut self, batch: &mut Batch<'_>, index: TaskIndex, task: &Task, lanes: &[usize]) {
        let Some(&first) = lanes.first() else { return };
        let host = batch.lanes[first].host;
        let shared = u32::try_from(self.graph.shared.len()).unwrap_or(u32::MAX);
        let lane_of = |lane: &usize| {
            let lane = &batch.lanes[*lane];
            SharedLane { host: lane.host, waits_for: lane.waits_for() }
        };
        self.graph.shared.push(lanes.iter().map(lane_of).collect());
        let node = self.graph.add(Node {
            task: Some(index),
            host: Some(host),
            shared: Some(shared),
            target: static_target(batch.inventory, task, host),
            rescued: batch.rescues > 0,
            always: batch.always > 0,
            round: batch.round,
            ..virtual_node(NodeKind::Task, batch.index, batch.number)
        });
        for &lane in lanes {
            let lane = &mut batch.lanes[lane];
            for (tip, _) in lane.waits_for() {
                self.graph.edge(tip, node, EdgeKind::Lane, Reason::Shared);
            }
            // A host that failed before must not come back to life through what others share.
            lane.tips.push((node, EdgeKind::Success));
        }
    }

    pub(super) fn follow(&mut self, lane: &mut Lane, node: NodeIndex, reason: Reason) {
        for (tip, kind) in lane.waits_for() {
            self.graph.edge(tip, node, kind, reason);
        }
        lane.tips = vec![(node, EdgeKind::Success)];
    }

    fn block(&mut self, batch: &mut Batch<'_>, block: &Block) {
        if block.rescue.is_empty() && block.always.is_empty() {
            return self.items(batch, &block.body);
        }
        let starts = self.block_starts(batch);
        batch.rescues += usize::from(!block.rescue.is_empty());
        self.items(batch, &block.body);
        batch.rescues -= usize::from(!block.rescue.is_empty());
        let body = tips(batch);
        let (gates, rescue) = self.rescue_part(batch, block, &starts, &body);
        let always = self.always_part(batch, &block.always, &starts, &[&body, &rescue]);
        self.block_ends(batch, starts, body, gates, rescue, always);
    }

    pub(super) fn block_starts(&mut self, batch: &mut Batch<'_>) -> Vec<NodeIndex> {
        let mut starts = Vec::new();
        for lane in &mut batch.lanes {
            let mut node = virtual_node(NodeKind::BlockStart, batch.index, batch.number);
            node.host = Some(lane.host);
            let start = self.graph.add(node);
            self.follow(lane, start, Reason::Block);
            starts.push(start);
        }
        starts
    }

    fn rescue_part(
        &mut self,
        batch: &mut Batch<'_>,
        block: &Block,
        starts: &[NodeIndex],
        body: &[Vec<NodeIndex>],
    ) -> (Vec<Option<NodeIndex>>, Vec<Vec<NodeIndex>>) {
        if block.rescue.is_empty() {
            return (vec![None; starts.len()], vec![Vec::new(); starts.len()]);
        }
        self.rescue_with(batch, starts, body, |builder, batch| builder.items(batch, &block.rescue))
    }

    /// The part that runs when the body has failed, as `add` builds it.
    pub(super) fn rescue_with(
        &mut self,
        batch: &mut Batch<'_>,
        starts: &[NodeIndex],
        body: &[Vec<NodeIndex>],
        add: impl FnOnce(&mut Self, &mut Batch<'_>),
    ) -> (Vec<Option<NodeIndex>>, Vec<Vec<NodeIndex>>) {
        let (mut gates, mut outer) = (Vec::new(), Vec::new());
        for ((lane, start), body) in batch.lanes.iter_mut().zip(starts).zip(body) {
            let mut node = virtual_node(NodeKind::Rescue, batch.index, batch.number);
            node.host = Some(lane.host);
            let gate = self.graph.add(node);
            self.graph.edge(*start, gate, EdgeKind::Success, Reason::Block);
            for end in body {
                self.graph.edge(*end, gate, EdgeKind::Always, Reason::Block);
            }
            lane.tips = Vec::new();
            outer.push(lane.branch.replace(gate));
            gates.push(Some(gate));
        }
        add(self, batch);
        for (lane, branch) in batch.lanes.iter_mut().zip(outer) {
            lane.branch = branch;
        }
        (gates, tips(batch))
    }

    pub(super) fn always_part(
        &mut self,
        batch: &mut Batch<'_>,
        items: &[Item],
        starts: &[NodeIndex],
        parts: &[&Vec<Vec<NodeIndex>>],
    ) -> Vec<Vec<NodeIndex>> {
        if items.is_empty() {
            return vec![Vec::new(); starts.len()];
        }
        for (position, (lane, start)) in batch.lanes.iter_mut().zip(starts).enumerate() {
            lane.tips = vec![(*start, EdgeKind::Success)];
            lane.tips.extend(parts.iter().flat_map(|part| &part[position]).map(|end| (*end, EdgeKind::Always)));
        }
        batch.always += 1;
        self.items(batch, items);
        batch.always -= 1;
        tips(batch)
    }

    pub(super) fn block_ends(
        &mut self,
        batch: &mut Batch<'_>,
        starts: Vec<NodeIndex>,
        body: Vec<Vec<NodeIndex>>,
        gates: Vec<Option<NodeIndex>>,
        rescue: Vec<Vec<NodeIndex>>,
        always: Vec<Vec<NodeIndex>>,
    ) {
        let parts = starts.into_iter().zip(body).zip(gates).zip(rescue).zip(always);
        for (lane, ((((start, body), gate), rescue), always)) in batch.lanes.iter_mut().zip(parts) {
            let number = u32::try_from(self.graph.blocks.len()).unwrap_or(u32::MAX);
            let mut node = virtual_node(NodeKind::BlockEnd(number), batch.index, batch.number);
            node.host = Some(lane.host);
            node.rescued = batch.rescues > 0;
            let end = self.graph.add(node);
            let before = [start].into_iter().chain(gate).chain(body.iter().chain(&rescue).chain(&always).copied());
            for node in before.collect::<IndexSet<_>>() {
                self.graph.edge(node, end, EdgeKind::Always, Reason::Block);
            }
            self.graph.blocks.push(BlockParts { start, body, gate, rescue, always });
            lane.tips = vec![(end, EdgeKind::Success)];
        }
    }

    /// Handlers that may have been notified, in the order they are written. A handler can notify
    /// another; one that stands earlier gets a second round.
    fn flush(&mut self, batch: &mut Batch<'_>) {
        let mut rounds = batch.play.handlers.len() + 1;
        while !batch.pending.is_empty() && rounds > 0 {
            rounds -= 1;
            let mut pending: Vec<_> = std::mem::take(&mut batch.pending).into_iter().collect();
            pending.sort_unstable();
            while !pending.is_empty() {
                let position = pending.remove(0);
                let handler = batch.play.handlers[position].clone();
                self.handler(batch, &handler);
                self.note_notified(batch, &handler);
                let later: Vec<_> = batch.pending.iter().copied().filter(|p| *p > position).collect();
                for p in later {
                    batch.pending.swap_remove(&p);
                    if let Err(at) = pending.binary_search(&p) {
                        pending.insert(at, p);
                    }
                }
            }
        }
    }

    fn handler(&mut self, batch: &mut Batch<'_>, handler: &Arc<Task>) {
        let handler = &self.variant(batch, handler);
        let index = self.task_index(handler, batch.index);
        for lane in &mut batch.lanes {
            let round = self.rounds.entry((index, lane.host)).or_default();
            let node = self.graph.add(Node {
                kind: NodeKind::Handler,
                round: *round,
                task: Some(index),
                host: Some(lane.host),
                target: static_target(batch.inventory, handler, lane.host),
                rescued: batch.rescues > 0,
                always: batch.always > 0,
                ..virtual_node(NodeKind::Handler, batch.index, batch.number)
            });
            *round += 1;
            if batch.play.force_handlers {
                for (tip, _) in &lane.tips {
                    self.graph.edge(*tip, node, EdgeKind::Always, Reason::Notify);
                }
                lane.tips.push((node, EdgeKind::Success));
            } else {
                self.follow(lane, node, Reason::Notify);
            }
        }
    }
}

pub(super) fn virtual_node(kind: NodeKind, play: PlayIndex, batch: u32) -> Node {
    Node {
        kind,
        play,
        batch,
        task: None,
        host: None,
        shared: None,
        target: None,
        rescued: false,
        always: false,
        round: 0,
    }
}

fn tips(batch: &Batch<'_>) -> Vec<Vec<NodeIndex>> {
    batch.lanes.iter().map(|lane| lane.tips.iter().map(|(node, _)| *node).collect()).collect()
}

/// Which lanes share one node, for `run_once` and `once_per`.
fn sharing_groups(batch: &Batch<'_>, task: &Task) -> Option<Vec<Vec<usize>>> {
    let lanes = 0..batch.lanes.len();
    if task.run_once {
        return Some(vec![lanes.collect()]);
    }
    let once_per = task.once_per.as_ref()?.value;
    let mut groups: indexmap::IndexMap<String, Vec<usize>> = indexmap::IndexMap::new();
    for lane in lanes {
        let host = batch.inventory.host_by_id(batch.lanes[lane].host);
        let key = match once_per {
            OncePer::Hypervisor => hypervisor_of(host).map(str::to_owned),
            OncePer::Cluster => host.cluster().map(ToString::to_string),
            OncePer::Zone => host.zone.clone(),
        };
        // A host that belongs to none stands for itself.
        groups.entry(key.unwrap_or_else(|| format!("\0{}", host.name))).or_default().push(lane);
    }
    Some(groups.into_values().collect())
}

fn hypervisor_of(host: &crate::inventory::Host) -> Option<&str> {
    match &host.kind {
        HostKind::Hypervisor => Some(host.name.as_str()),
        HostKind::Plain | HostKind::Member { .. } => host.hypervisor.as_ref().map(|name| name.as_str()),
    }
}

/// The target, where the playbook and the inventory alone decide it.
fn static_target(inventory: &Inventory, task: &Task, host: HostId) -> Option<HostId> {
    let named = task.delegate_to.as_ref().filter(|node| !node.is_template()).and_then(|node| node.as_str());
    let per_hypervisor = task.once_per.as_ref().is_some_and(|o| o.value == OncePer::Hypervisor);
    let on_hypervisor = task.on.as_ref().map_or(per_hypervisor, |on| on.value == On::Hypervisor);
    let name = match named {
        Some(name) => name,
        None if on_hypervisor => hypervisor_of(inventory.host_by_id(host))?,
        None => return None,
    };
    inventory.host(name).map(|target| target.id).filter(|target| *target != host)
}
