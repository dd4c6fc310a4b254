//! Finding a cycle, and telling it in the order it runs.

use std::collections::{HashMap, HashSet, hash_map::Entry};

use petgraph::algo::{tarjan_scc, toposort};

use super::{Graph, NodeIndex};

/// Nodes that wait for each other; the last one waits for the first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cycle(pub Vec<NodeIndex>);

/// A shortest cycle, if the graph has one.
pub fn find_cycle(graph: &Graph) -> Option<Cycle> {
    toposort(&graph.dag, None).err()?;
    let component = tarjan_scc(&graph.dag)
        .into_iter()
        .filter(|component| component.len() > 1 || is_self_loop(graph, component))
        .min_by_key(Vec::len)?;
    shortest_loop(graph, &component)
}

fn is_self_loop(graph: &Graph, component: &[NodeIndex]) -> bool {
    component.first().is_some_and(|&node| graph.dag.find_edge(node, node).is_some())
}

/// Breadth first from one node of the component back to itself.
fn shortest_loop(graph: &Graph, component: &[NodeIndex]) -> Option<Cycle> {
    let start = *component.iter().min()?;
    let inside: HashSet<NodeIndex> = component.iter().copied().collect();
    let mut came_from: HashMap<NodeIndex, NodeIndex> = HashMap::new();
    let mut frontier = vec![start];
    while !frontier.is_empty() {
        let mut next = Vec::new();
        for node in frontier {
            for (successor, _) in graph.successors(node).filter(|(n, _)| inside.contains(n)) {
                if successor == start {
                    return Some(Cycle(trace(start, node, &came_from)));
                }
                if let Entry::Vacant(entry) = came_from.entry(successor) {
                    entry.insert(node);
                    next.push(successor);
                }
            }
        }
        frontier = next;
    }
    None
}

fn trace(start: NodeIndex, last: NodeIndex, came_from: &HashMap<NodeIndex, NodeIndex>) -> Vec<NodeIndex> {
    let mut path = vec![last];
    let mut node = last;
    while node != start {
        let Some(&previous) = came_from.get(&node) else { break };
        path.push(previous);
        node = previous;
    }
    path.reverse();
    path
}
