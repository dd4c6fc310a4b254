//! Rollout: which cluster may roll, and which of its hosts has the turn.
//!
//! In: what the scheduler sees of the nodes that hold a rollout together. Out: whether each of them passes, waits, or
//! ends with the rollout. Plain bookkeeping: it runs nothing, knows nothing of etcd, and never lets more hosts of a
//! group have their turn than the playbook says. Who is next is told to it; strategies are roles (`rollout_*`).

use std::collections::{HashMap, HashSet};

use crate::{
    graph::{Graph, NodeIndex, PlayIndex},
    inventory::HostId,
};

/// What becomes of a node that a rollout holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Passage {
    Pass,
    /// It is kept here, and handed out by `released` when it may go on.
    Wait,
    /// The rollout has ended early, through the fault of this node.
    Ended(Option<NodeIndex>),
}

#[derive(Default)]
pub(crate) struct Turns {
    /// Groups that roll, by play.
    rolling: HashMap<PlayIndex, HashSet<u32>>,
    /// Groups that wait for others, with their start.
    queued: Vec<(u32, NodeIndex)>,
    /// Groups that go no further, with the node whose fault it is.
    halted: HashMap<u32, Option<NodeIndex>>,
    steps: HashMap<u32, Step>,
    released: Vec<NodeIndex>,
}

/// How far one step is.
#[derive(Default)]
struct Step {
    granted: HashSet<HostId>,
    over: HashSet<HostId>,
    /// Starts of turns that have not been granted yet.
    waiting: HashMap<HostId, NodeIndex>,
    /// The node that waits until a turn is free.
    free: Option<NodeIndex>,
}

impl Step {
    fn active(&self) -> usize {
        self.granted.len() - self.over.len()
    }
}

impl Turns {
    /// A group wants to begin.
    pub fn rollout_start(&mut self, graph: &Graph, group: u32, node: NodeIndex) -> Passage {
        let info = &graph.rollouts[group as usize];
        let rolling = self.rolling.entry(info.play).or_default();
        if rolling.len() < info.max_groups {
            rolling.insert(group);
            return Passage::Pass;
        }
        self.queued.push((group, node));
        Passage::Wait
    }

    /// A group is through, well or not.
    pub fn rollout_end(&mut self, graph: &Graph, group: u32) {
        let play = graph.rollouts[group as usize].play;
        if self.rolling.entry(play).or_default().remove(&group)
            && let Some(next) = self.queued.iter().position(|(other, _)| graph.rollouts[*other as usize].play == play)
        {
            self.released.push(self.queued.remove(next).1);
        }
    }

    /// A further turn may be given away when few enough are on.
    pub fn free(&mut self, graph: &Graph, step: u32, node: NodeIndex) -> Passage {
        let info = &graph.steps[step as usize];
        if let Some(cause) = self.halted.get(&info.group) {
            return Passage::Ended(*cause);
        }
        let state = self.steps.entry(step).or_default();
        if state.active() < info.at_once {
            return Passage::Pass;
        }
        state.free = Some(node);
        Passage::Wait
    }

    /// Gives the turn to the first of these that had none; hosts that are not named come last.
    pub fn grant(&mut self, graph: &Graph, step: u32, order: &[HostId]) -> Option<HostId> {
        let info = &graph.steps[step as usize];
        let state = self.steps.entry(step).or_default();
        let hosts = &graph.rollouts[info.group as usize].hosts;
        let of_group = order.iter().filter(|host| hosts.contains(host));
        let next = of_group.chain(hosts).find(|host| !state.granted.contains(host)).copied()?;
        state.granted.insert(next);
        self.released.extend(state.waiting.remove(&next));
        Some(next)
    }

    pub fn turn_start(&mut self, graph: &Graph, step: u32, host: HostId, node: NodeIndex) -> Passage {
        if let Some(cause) = self.halted.get(&graph.steps[step as usize].group) {
            return Passage::Ended(*cause);
        }
        let state = self.steps.entry(step).or_default();
        if state.granted.contains(&host) {
            return Passage::Pass;
        }
        state.waiting.insert(host, node);
        Passage::Wait
    }

    pub fn turn_end(&mut self, step: u32, host: HostId) {
        let state = self.steps.entry(step).or_default();
        if state.granted.contains(&host) && state.over.insert(host) {
            self.released.extend(state.free.take());
        }
    }

    /// Nothing more of the group begins.
    pub fn halt(&mut self, graph: &Graph, group: u32, cause: Option<NodeIndex>) {
        self.halted.entry(group).or_insert(cause);
        let of_group = |step: &u32| graph.steps[*step as usize].group == group;
        for (_, state) in self.steps.iter_mut().filter(|(step, _)| of_group(step)) {
            self.released.extend(state.free.take());
            self.released.extend(state.waiting.drain().map(|(_, node)| node));
        }
    }

    /// Nodes that waited and are to be asked about again. In a fixed order, so that runs are alike.
    pub fn released(&mut self) -> Vec<NodeIndex> {
        self.released.sort_unstable();
        std::mem::take(&mut self.released)
    }

    /// All that wait, because nothing more will be given to them.
    pub fn give_up(&mut self) -> Vec<NodeIndex> {
        self.released.extend(self.queued.drain(..).map(|(_, node)| node));
        for state in self.steps.values_mut() {
            self.released.extend(state.free.take());
            self.released.extend(state.waiting.drain().map(|(_, node)| node));
        }
        self.released()
    }
}

#[cfg(test)]
mod tests;
