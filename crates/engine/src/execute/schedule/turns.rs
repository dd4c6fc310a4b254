//! The nodes that hold a rollout together: what the scheduler makes of them.

use std::{
    collections::{HashMap, HashSet},
    time::{Duration, Instant},
};

use crate::execute::{scheduler::Scheduler, settle::Fate};
use crate::{
    graph::{Node, NodeIndex, NodeKind, PlayIndex, Turn},
    inventory::HostId,
    is_off,
    model::{Status, Value},
    playbook::{On, StrategyAnswer, Task},
    policy, repair,
    rollout::Passage,
};

/// How long turns take.
#[derive(Default)]
pub(in crate::execute) struct Clocks {
    begun: HashMap<(u32, HostId), Instant>,
    /// By group.
    longest: HashMap<u32, Duration>,
    /// Plays in which something changed: a turn without is no measure.
    pub changed: HashSet<PlayIndex>,
}

impl Scheduler {
    /// All before the node has ended, and this would follow from that alone.
    pub(in crate::execute) fn held(&mut self, index: NodeIndex, fate: Fate) {
        let graph = self.context.graph.clone();
        let node = graph.node(index);
        let fate = if self.gives_up() && node.kind.waits() { Fate::new(Status::NotRun) } else { fate };
        let passes = fate.status == Status::Ok;
        let passage = match (node.kind, node.host) {
            (NodeKind::RolloutStart(group), _) if passes => self.turns.rollout_start(&graph, group, index),
            (NodeKind::RolloutEnd(group), _) => {
                self.turns.rollout_end(&graph, group);
                Passage::Pass
            }
            (NodeKind::Hop(step), _) if passes && !self.is_on_the_way(step) => {
                return self.end(index, Fate::new(Status::Skipped));
            }
            (NodeKind::Free(step), _) if passes => self.turns.free(&graph, step, index),
            (NodeKind::Grant(step), _) if passes => {
                let order = self.order(step);
                self.turns.grant(&graph, step, &order);
                Passage::Pass
            }
            (NodeKind::TurnStart(step), Some(host)) if passes => self.turns.turn_start(&graph, step, host, index),
            (NodeKind::TurnEnd(step), Some(host)) if passes => {
                self.turns.turn_end(step, host);
                Passage::Pass
            }
            (NodeKind::Grant(step) | NodeKind::TurnStart(step) | NodeKind::TurnEnd(step), _)
                if fate.status == Status::NotRun =>
            {
                self.turns.halt(&graph, graph.steps[step as usize].group, fate.cause);
                Passage::Pass
            }
            _ => Passage::Pass,
        };
        self.clock(node, passage, fate.status);
        match passage {
            Passage::Wait => {}
            Passage::Pass => self.end(index, fate),
            Passage::Ended(cause) => self.end(index, Fate { status: Status::NotRun, cause }),
        }
        let released = self.turns.released();
        self.ready_again(released);
    }

    /// Sees how long turns take. What a rollout that changed something took is kept for the next plan.
    fn clock(&mut self, node: &Node, passage: Passage, status: Status) {
        if passage != Passage::Pass || status != Status::Ok {
            return;
        }
        match (node.kind, node.host) {
            (NodeKind::TurnStart(step), Some(host)) => drop(self.clocks.begun.insert((step, host), Instant::now())),
            (NodeKind::TurnEnd(step), Some(host)) => {
                let group = self.context.graph.steps[step as usize].group;
                if let Some(begun) = self.clocks.begun.remove(&(step, host)) {
                    let longest = self.clocks.longest.entry(group).or_default();
                    *longest = begun.elapsed().max(*longest);
                }
            }
            (NodeKind::RolloutEnd(group), _) => self.keep_time(group, node.play),
            _ => {}
        }
    }

    fn keep_time(&mut self, group: u32, play: PlayIndex) {
        let Some(longest) = self.clocks.longest.remove(&group).filter(|_| self.clocks.changed.contains(&play)) else {
            return;
        };
        let name = &self.context.graph.rollouts[group as usize].name;
        if self.context.options.check_mode || self.context.inventory.cluster(name).is_none() {
            return;
        }
        if let Err(error) = self.context.guard.quorum().keep_turn(&self.context.options.state, name, longest) {
            tracing::warn!(%error, "cannot store the duration of the turns of {name}");
        }
    }

    /// Whether the cluster goes through the version of this step; what is not said is done.
    fn is_on_the_way(&self, step: u32) -> bool {
        let Some(version) = self.context.graph.steps[step as usize].version else { return true };
        let Some(hops) = self.registered(step, StrategyAnswer::PATH) else { return true };
        hops.iter().filter_map(Value::as_str).any(|hop| hop.parse() == Ok(version))
    }

    fn order(&self, step: u32) -> Vec<HostId> {
        let names = self.registered(step, StrategyAnswer::NEXT).unwrap_or_default();
        let names = names.iter().filter_map(Value::as_str);
        names.filter_map(|name| Some(self.context.inventory.host(name)?.id)).collect()
    }

    /// A list that the strategy has registered for the hosts of a group.
    fn registered(&self, step: u32, answer: StrategyAnswer) -> Option<Vec<Value>> {
        let graph = &self.context.graph;
        let group = &graph.rollouts[graph.steps[step as usize].group as usize];
        let of_host = |host: &HostId| {
            self.context.registered.late(*host).get(answer.register)?.get(answer.field)?.as_array().cloned()
        };
        group.hosts.iter().find_map(of_host)
    }

    /// Gates of a turn that is not over are looked at again, whatever an earlier process has seen; and so is every other gate in
    /// front of something that is not done. What they look at is looked at again, too, if it ages.
    pub(in crate::execute) fn gates_to_repeat(&self) -> HashSet<NodeIndex> {
        if is_off(policy::OBSERVE_AGAIN) {
            return HashSet::new();
        }
        let graph = &self.context.graph;
        let perishable = |index: &NodeIndex| graph.task_of(*index).is_some_and(|task| task.effects.perishable);
        let mut repeated = self.gates_of_open_turns();
        // Backwards: what is in front of a gate that is passed again is done again as well.
        for index in (0..graph.len()).rev().map(NodeIndex::new).filter(perishable) {
            if !is_off(repair::GATES_AGAIN) && self.opens_something(index, &repeated) {
                repeated.insert(index);
            }
        }
        repeated
    }

    /// Whether what comes right behind a node was not done yet, or is done again. What was skipped is not in between.
    fn opens_something(&self, gate: NodeIndex, repeated: &HashSet<NodeIndex>) -> bool {
        let graph = &self.context.graph;
        let (mut seen, mut next) = (HashSet::from([gate]), vec![gate]);
        while let Some(index) = next.pop() {
            for behind in graph.dag.neighbors(index).filter(|behind| seen.insert(*behind)).collect::<Vec<_>>() {
                match graph.node(behind).kind.is_virtual() || self.was_skipped(behind) {
                    true => next.push(behind),
                    false if self.has_ended(behind) && !repeated.contains(&behind) => {}
                    false => return true,
                }
            }
        }
        false
    }

    fn gates_of_open_turns(&self) -> HashSet<NodeIndex> {
        let graph = &self.context.graph;
        let is_work = |index: &usize| !graph.node(NodeIndex::new(*index)).kind.is_virtual();
        // A strategy need not have anything behind a turn.
        let is_over = |turn: &Turn| {
            let last = turn.after.clone().rfind(is_work).or_else(|| turn.nodes.clone().rfind(is_work));
            last.is_some_and(|last| self.context.recorder.past(last).is_some_and(|past| past.done.is_some()))
        };
        let open = graph.steps.iter().flat_map(|step| &step.turns).filter(|turn| !is_over(turn));
        let gates = open.flat_map(|turn| turn.before.clone().filter(is_work)).map(NodeIndex::new);
        // A command that changes nothing has looked at something. What runs here is a hook.
        let is_here = |task: &Task| task.on.as_ref().is_some_and(|on| on.value == On::Operator);
        let has_looked = |task: &Task| task.effects.opaque && task.says_unchanged() && !is_here(task);
        let is_look = |task: &Task| task.effects.read_only || task.effects.perishable || has_looked(task);
        let is_repeated = |gate: &NodeIndex| graph.task_of(*gate).is_some_and(|task| is_look(task));
        gates.filter(is_repeated).collect()
    }
}

impl NodeKind {
    /// Whether something begins with it that must not begin any more once a run is given up.
    fn waits(self) -> bool {
        use NodeKind::{Free, Grant, RolloutStart, TurnStart};
        matches!(self, RolloutStart(_) | Free(_) | Grant(_) | TurnStart(_))
    }
}
