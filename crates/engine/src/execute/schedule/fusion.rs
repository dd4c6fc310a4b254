//! Which nodes may share an exec, as far as the graph and the playbook tell.
//!
//! The scheduler asks here for the nodes that could follow the one it starts; what only rendering can
//! tell (a template that reads an earlier result, an action of the engine, another user) is found by
//! `prepare`, and what does not fit is handed back.

use std::collections::VecDeque;

use crate::execute::{
    scheduler::{Scheduler, notice},
    settle::{Decision, Fate, decide},
};
use crate::{
    graph::{Node, NodeIndex, NodeKind},
    model::Status,
    playbook::{Task, constant},
};

/// How many nodes share an exec at most.
const LONGEST: usize = 100;

/// A node that may be next, and the place in the chain that it waits for.
type Open = VecDeque<(NodeIndex, usize)>;

/// What becomes of a node if all that is in the chain succeeds.
enum Foreseen {
    Joins,
    Ends(Fate),
    Apart,
}

impl Scheduler {
    /// The node, and those behind it that wait for nothing but the chain itself.
    ///
    /// Walks the graph as if each of them succeeded, and leaves everything as it was.
    pub(in crate::execute) fn chain(&mut self, first: NodeIndex) -> Vec<NodeIndex> {
        let graph = self.context.graph.clone();
        let mut chain = vec![first];
        if !self.can_fuse(graph.node(first)) || graph.task_of(first).is_some_and(|task| is_judged(task)) {
            return chain;
        }
        let (mut open, mut assumed) = (Open::new(), vec![first]);
        self.assume(first, Fate::new(Status::Ok), 0, &mut open);
        while let Some((index, behind)) = open.pop_front() {
            match self.foresee(index, behind, &chain) {
                Foreseen::Apart => {}
                Foreseen::Ends(fate) => {
                    assumed.push(index);
                    self.assume(index, fate, behind, &mut open);
                }
                Foreseen::Joins => {
                    chain.push(index);
                    if chain.len() == LONGEST || graph.task_of(index).is_some_and(|task| is_judged(task)) {
                        break;
                    }
                    assumed.push(index);
                    self.assume(index, Fate::new(Status::Ok), chain.len() - 1, &mut open);
                }
            }
        }
        assumed.into_iter().for_each(|index| self.forget(index));
        chain
    }

    fn assume(&mut self, index: NodeIndex, fate: Fate, behind: usize, open: &mut Open) {
        self.fates[index.index()] = Some(fate);
        for (successor, _) in self.context.graph.successors(index) {
            let waiting = &mut self.waiting[successor.index()];
            *waiting -= 1;
            if *waiting == 0 {
                open.push_back((successor, behind));
            }
        }
    }

    fn forget(&mut self, index: NodeIndex) {
        self.fates[index.index()] = None;
        for (successor, _) in self.context.graph.successors(index) {
            self.waiting[successor.index()] += 1;
        }
    }

    fn foresee(&self, index: NodeIndex, behind: usize, chain: &[NodeIndex]) -> Foreseen {
        let graph = &self.context.graph;
        let node = graph.node(index);
        // An exec that has failed meanwhile still has it, and is about to give it back; or a rollout decides.
        if self.claimed[index.index()] || node.kind.is_held() {
            return Foreseen::Apart;
        }
        let runs_in = |chain: &[NodeIndex]| chain.iter().any(|member| notice(graph.node(*member)) == notice(node));
        match decide(graph, &self.fates, index) {
            // The start of a play is told before anything in it.
            Decision::End(fate) if fate.status.satisfies() && node.kind != NodeKind::PlayStart => Foreseen::Ends(fate),
            Decision::End(_) => Foreseen::Apart,
            // An earlier process has run it.
            Decision::Run(_) if self.is_done(index) => Foreseen::Apart,
            // One that is in the chain already has used the notice up: a flush, and then the end of the play.
            Decision::Run(_) if node.kind == NodeKind::Handler && (!self.is_notified(node) || runs_in(chain)) => {
                let may_be = |member: &NodeIndex| self.notifies(*member, node);
                if chain.iter().any(may_be) { Foreseen::Apart } else { Foreseen::Ends(Fate::new(Status::Skipped)) }
            }
            Decision::Run(_) => {
                let first = graph.node(chain[0]);
                // Only what waits for the last of the chain: anything else would wait for it in vain.
                let joins = behind + 1 == chain.len() && is_alike(first, node) && self.can_fuse(node);
                if joins { Foreseen::Joins } else { Foreseen::Apart }
            }
        }
    }

    fn can_fuse(&self, node: &Node) -> bool {
        let Some(task) = node.task.map(|task| &self.context.graph.task(task).task) else { return false };
        let reachable = node.host.is_some_and(|host| !self.unreachable.contains_key(&host));
        reachable && node.shared.is_none() && !needs_operator(task) && task.throttle.is_none()
    }

    fn notifies(&self, member: NodeIndex, handler: &Node) -> bool {
        let graph = &self.context.graph;
        let member = graph.node(member);
        let handlers = member.task.and_then(|task| graph.notifies.get(&task));
        member.host == handler.host && handlers.into_iter().flatten().any(|task| Some(*task) == handler.task)
    }
}

/// The same place and the same rules about when to give up.
fn is_alike(first: &Node, node: &Node) -> bool {
    let place = |node: &Node| node.target.or(node.host);
    place(first) == place(node) && first.play == node.play && first.always == node.always
}

/// Whether the operator is asked while the task runs, or right behind it.
pub(in crate::execute) fn needs_operator(task: &Task) -> bool {
    let computed_target = task.delegate_to.as_ref().is_some_and(crate::source::Node::is_template);
    let pauses = task.loops.as_ref().is_some_and(|items| !items.pause.is_zero());
    let repeats = !task.until.is_empty() || task.retries > 0;
    computed_target || pauses || repeats || task.detach.is_some()
}

/// Whether the operator must look at the result before anything else may run.
fn is_judged(task: &Task) -> bool {
    let fails = !task.failed_when.is_empty() && !task.never_fails();
    fails || task.changed_when.iter().any(|condition| constant(condition).is_none())
}
