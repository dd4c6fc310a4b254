//! What becomes of a node once everything it waits for has ended. Pure.

use crate::{
    graph::{BlockParts, EdgeKind, Graph, NodeIndex, NodeKind},
    inventory::HostId,
    model::Status,
};

/// How a node ended, and through whose fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::execute) struct Fate {
    pub status: Status,
    /// For nodes that did not run: the one that failed.
    pub cause: Option<NodeIndex>,
}

impl Fate {
    pub(in crate::execute) fn new(status: Status) -> Self {
        Self { status, cause: None }
    }

    fn not_run(cause: Option<NodeIndex>) -> Self {
        Self { status: Status::NotRun, cause }
    }

    /// Whose fault it is that what waits for this node cannot run; nobody's after an interrupt.
    fn blame(self, node: NodeIndex) -> Option<NodeIndex> {
        if self.status == Status::NotRun { self.cause } else { self.cause.or(Some(node)) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::execute) enum Decision {
    /// Run it, for these hosts.
    Run(Vec<HostId>),
    /// It ends here without running.
    End(Fate),
}

/// All predecessors have ended; `fates` knows how.
pub(in crate::execute) fn decide(graph: &Graph, fates: &[Option<Fate>], index: NodeIndex) -> Decision {
    let node = graph.node(index);
    match node.kind {
        NodeKind::BlockEnd(block) => Decision::End(block_end(&graph.blocks[block as usize], fates)),
        NodeKind::Rescue => Decision::End(rescue(graph, fates, index)),
        NodeKind::BatchEnd => Decision::End(batch_end(graph, fates, index)),
        NodeKind::TurnEnd(_) => Decision::End(turn_end(graph, fates, index)),
        NodeKind::RolloutEnd(_) => Decision::End(Fate::new(Status::Ok)),
        NodeKind::PlayStart
        | NodeKind::Join
        | NodeKind::BlockStart
        | NodeKind::RolloutStart(_)
        | NodeKind::Hop(_)
        | NodeKind::Free(_)
        | NodeKind::Grant(_)
        | NodeKind::TurnStart(_) => Decision::End(held_back(graph, fates, index).unwrap_or(Fate::new(Status::Ok))),
        NodeKind::Task | NodeKind::Handler => work(graph, fates, index),
    }
}

fn work(graph: &Graph, fates: &[Option<Fate>], index: NodeIndex) -> Decision {
    if let Some(fate) = held_back(graph, fates, index) {
        return Decision::End(fate);
    }
    let node = graph.node(index);
    let Some(shared) = node.shared else { return Decision::Run(node.host.into_iter().collect()) };
    let lanes = &graph.shared[shared as usize];
    let unmet = |lane: &crate::graph::SharedLane| {
        lane.waits_for.iter().find_map(|(before, kind)| blocked_by(fates, *before, *kind))
    };
    let ready: Vec<_> = lanes.iter().filter(|lane| unmet(lane).is_none()).map(|lane| lane.host).collect();
    match lanes.first().and_then(unmet) {
        Some(fate) if ready.is_empty() => Decision::End(fate),
        _ => Decision::Run(ready),
    }
}

/// The first reason not to run, if there is one.
fn held_back(graph: &Graph, fates: &[Option<Fate>], index: NodeIndex) -> Option<Fate> {
    let mut edges: Vec<_> = graph.predecessors(index).collect();
    // petgraph hands out the newest edge first; the oldest tells the story better.
    edges.reverse();
    edges.into_iter().find_map(|(before, edge)| blocked_by(fates, before, edge.kind))
}

fn blocked_by(fates: &[Option<Fate>], before: NodeIndex, kind: EdgeKind) -> Option<Fate> {
    let fate = fates[before.index()]?;
    match (kind, fate.status) {
        (EdgeKind::Always | EdgeKind::Lane, _) => None,
        (EdgeKind::Branch, Status::Ok) => None,
        (EdgeKind::Branch, Status::Skipped) => Some(Fate::new(Status::Skipped)),
        (EdgeKind::Success, status) if status.satisfies() => None,
        _ => Some(Fate::not_run(fate.blame(before))),
    }
}

/// The node that failed behind this one, if it is this kind of failure that a rescue takes over.
fn failure(fates: &[Option<Fate>], node: NodeIndex) -> Option<(Option<NodeIndex>, Status)> {
    let fate = fates[node.index()]?;
    if fate.status.satisfies() {
        return None;
    }
    let cause = fate.blame(node);
    let status = cause.and_then(|cause| fates[cause.index()]).map_or(fate.status, |cause| cause.status);
    Some((cause, status))
}

/// Opens (`Ok`) if the block failed, stays shut (`Skipped`) if it did not. Unreachable does not rescue.
fn rescue(graph: &Graph, fates: &[Option<Fate>], index: NodeIndex) -> Fate {
    if let Some(fate) = held_back(graph, fates, index) {
        return fate;
    }
    let failures: Vec<_> = graph.predecessors(index).filter_map(|(before, _)| failure(fates, before)).collect();
    match failures.iter().find(|(_, status)| !matches!(status, Status::Failed | Status::Rescued)) {
        Some((cause, _)) => Fate::not_run(*cause),
        None if failures.is_empty() => Fate::new(Status::Skipped),
        None => Fate::new(Status::Ok),
    }
}

fn block_end(parts: &BlockParts, fates: &[Option<Fate>]) -> Fate {
    let first_failure = |nodes: &[NodeIndex]| nodes.iter().find_map(|node| failure(fates, *node));
    if let Some((cause, _)) = first_failure(&[parts.start]) {
        return Fate::not_run(cause);
    }
    let rescued = parts.gate.is_some_and(|gate| fates[gate.index()].is_some_and(|fate| fate.status == Status::Ok));
    let main = if rescued { first_failure(&parts.rescue) } else { first_failure(&parts.body) };
    match main.or_else(|| first_failure(&parts.always)) {
        Some((cause, status)) => Fate { status, cause },
        None => Fate::new(Status::Ok),
    }
}

/// A turn has failed if anything in it has.
fn turn_end(graph: &Graph, fates: &[Option<Fate>], index: NodeIndex) -> Fate {
    let mut before: Vec<_> = graph.predecessors(index).map(|(before, _)| before).collect();
    before.reverse();
    match before.into_iter().find_map(|before| failure(fates, before)) {
        Some((cause, _)) => Fate::not_run(cause),
        None => Fate::new(Status::Ok),
    }
}

/// A batch that lost all its hosts ends the run, as in Ansible.
fn batch_end(graph: &Graph, fates: &[Option<Fate>], index: NodeIndex) -> Fate {
    let ends: Vec<_> = graph.predecessors(index).map(|(before, _)| before).collect();
    let all_lost = ends.iter().all(|end| failure(fates, *end).is_some());
    match ends.last().and_then(|end| failure(fates, *end)) {
        Some((cause, _)) if all_lost => Fate::not_run(cause),
        _ => Fate::new(Status::Ok),
    }
}
