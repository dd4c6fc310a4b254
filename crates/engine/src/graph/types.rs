//! The graph itself, kept small: a large fleet has hundreds of thousands of nodes.

use std::{collections::HashMap, ops::Range, sync::Arc};

use petgraph::{Direction, graph::DiGraph, visit::EdgeRef};
use serde::Serialize;

use crate::{
    digest::{Sha256, hex},
    inventory::HostId,
    model::{HostName, Span, Version},
    playbook::{BatchSize, Task},
    task::Library,
};

/// A node, as an index that is stable for one graph.
pub type NodeIndex = petgraph::graph::NodeIndex<u32>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskIndex(pub u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PlayIndex(pub u32);

/// What a node stands for. All but `Task` and `Handler` are virtual: they order others and do nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeKind {
    Task,
    /// Runs only if something that notifies it changed.
    Handler,
    /// The start of a play, after all hosts have finished the one before.
    PlayStart,
    /// All hosts of a batch are through.
    BatchEnd,
    /// Stands for several nodes that others need.
    Join,
    BlockStart,
    /// Opens the rescue part if something in the block failed.
    Rescue,
    /// Succeeds if the block did, or was rescued; an index into `Graph::blocks`.
    BlockEnd(u32),
    /// A cluster begins to roll, when few enough others do; an index into `Graph::rollouts`.
    RolloutStart(u32),
    /// It does not roll any more.
    RolloutEnd(u32),
    /// Opens a step of a rollout if the cluster has to go that way; an index into `Graph::steps`, as for those below.
    Hop(u32),
    /// Waits until another host may have its turn.
    Free(u32),
    /// Gives the turn to the host that was chosen.
    Grant(u32),
    /// Waits until its host has the turn.
    TurnStart(u32),
    /// The host gives its turn back.
    TurnEnd(u32),
}

impl NodeKind {
    pub fn is_virtual(self) -> bool {
        !matches!(self, Self::Task | Self::Handler)
    }

    /// Whether it is the state of a rollout that decides about it, and not only what comes before it.
    pub fn is_held(self) -> bool {
        use NodeKind::{Free, Grant, Hop, RolloutEnd, RolloutStart, TurnEnd, TurnStart};
        matches!(self, RolloutStart(_) | RolloutEnd(_) | Hop(_) | Free(_) | Grant(_) | TurnStart(_) | TurnEnd(_))
    }

    pub fn name(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Handler => "handler",
            Self::PlayStart => "play_start",
            Self::BatchEnd => "batch_end",
            Self::Join => "join",
            Self::BlockStart => "block_start",
            Self::Rescue => "rescue",
            Self::BlockEnd(_) => "block_end",
            Self::RolloutStart(_) => "rollout_start",
            Self::RolloutEnd(_) => "rollout_end",
            Self::Hop(_) => "hop",
            Self::Free(_) => "free",
            Self::Grant(_) => "grant",
            Self::TurnStart(_) => "turn_start",
            Self::TurnEnd(_) => "turn_end",
        }
    }
}

/// One host's part in a shared node: it takes part if everything in its own chain held.
#[derive(Clone, Debug)]
pub struct SharedLane {
    pub host: HostId,
    pub waits_for: Vec<(NodeIndex, EdgeKind)>,
}

/// The parts of one block on one host, by the nodes that end each of them.
#[derive(Clone, Debug)]
pub struct BlockParts {
    pub start: NodeIndex,
    pub body: Vec<NodeIndex>,
    pub gate: Option<NodeIndex>,
    pub rescue: Vec<NodeIndex>,
    pub always: Vec<NodeIndex>,
}

/// A cluster that rolls in a play, or all its hosts where they belong to none.
#[derive(Clone, Debug)]
pub struct RolloutGroup {
    pub play: PlayIndex,
    pub name: Arc<str>,
    pub hosts: Vec<HostId>,
    /// How many groups of the play roll at the same time.
    pub max_groups: usize,
}

/// One step of a rollout, in which each host of the group has one turn.
#[derive(Clone, Debug)]
pub struct RolloutStep {
    pub group: u32,
    /// How many have their turn at the same time.
    pub at_once: usize,
    /// Where a rollout over versions goes to in this step.
    pub version: Option<Version>,
    pub turns: Vec<Turn>,
}

/// The turn of one host, by the indices of its nodes.
#[derive(Clone, Debug)]
pub struct Turn {
    pub host: HostId,
    pub nodes: Range<usize>,
    /// What must hold before anything is done.
    pub before: Range<usize>,
    /// What must hold in the end.
    pub after: Range<usize>,
    pub undo: Option<Undo>,
}

/// What comes of a turn that failed, with `on_failure: rollback`.
#[derive(Clone, Debug)]
pub struct Undo {
    /// What must hold before anything is put back.
    pub gates: Range<usize>,
    /// What says that all is back. It fails, for the turn has.
    pub word: Option<usize>,
}

/// A task on a host, or a point of order.
#[derive(Clone, Copy, Debug)]
pub struct Node {
    pub kind: NodeKind,
    pub play: PlayIndex,
    pub batch: u32,
    /// Set for tasks, handlers and the parts of a block.
    pub task: Option<TaskIndex>,
    /// Whose variables it uses; the first of several for shared nodes.
    pub host: Option<HostId>,
    /// Shared by several hosts: an index into `Graph::shared`.
    pub shared: Option<u32>,
    /// Where it runs, if that is known here and not the host itself.
    pub target: Option<HostId>,
    /// A failure here is taken over by a rescue.
    pub rescued: bool,
    /// Part of an `always`, which also runs when its play is given up.
    pub always: bool,
    /// Counts the times the same handler, or the same task of a rollout, may run on the same host.
    pub round: u16,
}

/// When the successor may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeKind {
    /// The predecessor succeeded, or was skipped.
    Success,
    /// One of several hosts that share the successor is ready; see `Graph::shared`.
    Lane,
    /// The predecessor opened this branch; if it did not, the successor is passed over.
    Branch,
    /// The predecessor has ended, however it ended.
    Always,
}

/// Why there is an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    Order,
    Needs,
    Play,
    Batch,
    Block,
    Notify,
    Shared,
    Value,
    Rollout,
}

#[derive(Clone, Copy, Debug)]
pub struct Edge {
    pub kind: EdgeKind,
    pub reason: Reason,
    /// What was written to make it, for `needs`.
    pub span: Option<Span>,
}

#[derive(Debug)]
pub struct TaskInfo {
    pub task: Arc<Task>,
    pub play: PlayIndex,
}

#[derive(Debug)]
pub struct PlayInfo {
    pub name: Arc<str>,
    /// The name, with a number where two plays have the same; the first part of node ids.
    pub id: Arc<str>,
    pub span: Span,
    pub hosts: Vec<HostId>,
    pub batches: Vec<Vec<HostId>>,
    pub serial: Vec<BatchSize>,
    /// Its hosts take turns.
    pub rolls: bool,
    pub any_errors_fatal: bool,
    pub max_fail_percentage: Option<f64>,
    pub vars: Arc<crate::source::Vars>,
    pub vars_files: Arc<crate::source::Vars>,
}

/// The compiled work of a playbook on an inventory.
#[derive(Debug, Default)]
pub struct Graph {
    pub playbook: String,
    /// Where its modules come from.
    pub library: Library,
    /// The inventory's hosts, by `HostId`.
    pub hosts: Vec<HostName>,
    pub plays: Vec<PlayInfo>,
    pub tasks: Vec<TaskInfo>,
    /// The hosts of shared nodes, with what each of them waits for.
    pub shared: Vec<Vec<SharedLane>>,
    pub blocks: Vec<BlockParts>,
    pub rollouts: Vec<RolloutGroup>,
    pub steps: Vec<RolloutStep>,
    /// Which handlers a task notifies when it changes something.
    pub notifies: HashMap<TaskIndex, Vec<TaskIndex>>,
    pub(crate) dag: DiGraph<Node, Edge, u32>,
}

impl Graph {
    pub fn node(&self, index: NodeIndex) -> &Node {
        &self.dag[index]
    }

    pub fn play(&self, index: PlayIndex) -> &PlayInfo {
        &self.plays[index.0 as usize]
    }

    pub fn task(&self, index: TaskIndex) -> &TaskInfo {
        &self.tasks[index.0 as usize]
    }

    /// The task of a node, for nodes that have one.
    pub fn task_of(&self, index: NodeIndex) -> Option<&Arc<Task>> {
        self.node(index).task.map(|task| &self.task(task).task)
    }

    pub fn host(&self, host: HostId) -> &HostName {
        &self.hosts[host.index()]
    }

    /// A path that names the node: play, host, role and task. Stable as long as the inputs are.
    pub fn id(&self, index: NodeIndex) -> String {
        let node = self.node(index);
        let play = &self.play(node.play).id;
        let host = node.host.map_or("~", |host| self.host(host).as_str());
        let Some(task) = self.task_of(index) else {
            return format!("{play}/{host}/~{}{}", node.kind.name(), index.index());
        };
        let round = if node.round == 0 { String::new() } else { format!("~{}", node.round + 1) };
        format!("{play}/{host}/{}{round}", task.path)
    }

    /// The same for the same nodes in the same order, whatever their values.
    pub fn fingerprint(&self) -> String {
        let mut hash = Sha256::default();
        for index in self.indices() {
            hash.update(self.id(index));
            hash.update(b"\n");
        }
        hex(&hash.finish()[..16])
    }

    pub fn indices(&self) -> impl Iterator<Item = NodeIndex> + use<> {
        self.dag.node_indices()
    }

    /// Nodes that stand for work.
    pub fn work(&self) -> impl Iterator<Item = NodeIndex> + '_ {
        self.indices().filter(|index| !self.node(*index).kind.is_virtual())
    }

    pub fn len(&self) -> usize {
        self.dag.node_count()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Hosts that a node speaks for.
    pub fn hosts_of(&self, node: &Node) -> Vec<HostId> {
        match node.shared {
            Some(shared) => self.shared[shared as usize].iter().map(|lane| lane.host).collect(),
            None => node.host.into_iter().collect(),
        }
    }

    pub fn predecessors(&self, index: NodeIndex) -> impl Iterator<Item = (NodeIndex, &Edge)> {
        self.dag.edges_directed(index, Direction::Incoming).map(|edge| (edge.source(), edge.weight()))
    }

    pub fn successors(&self, index: NodeIndex) -> impl Iterator<Item = (NodeIndex, &Edge)> {
        self.dag.edges_directed(index, Direction::Outgoing).map(|edge| (edge.target(), edge.weight()))
    }

    pub(crate) fn add(&mut self, node: Node) -> NodeIndex {
        self.dag.add_node(node)
    }

    pub(crate) fn edge(&mut self, from: NodeIndex, to: NodeIndex, kind: EdgeKind, reason: Reason) {
        self.dag.add_edge(from, to, Edge { kind, reason, span: None });
    }

    pub(crate) fn edge_at(&mut self, from: NodeIndex, to: NodeIndex, edge: Edge) {
        self.dag.add_edge(from, to, edge);
    }
}
