//! `needs`: edges between tasks that the order inside a host does not give.

use std::{collections::HashMap, sync::Arc};

use super::{chain::virtual_node, names::ValueNeed};
use crate::{
    graph::{Edge, EdgeKind, Graph, Node, NodeIndex, NodeKind, Reason},
    inventory::{HostId, Inventory},
    playbook::Need,
    source::{Diagnostic, Diagnostics, did_you_mean},
};

/// Adds the edges of every `needs`. A need on many nodes goes through one join.
pub(super) fn connect(graph: &mut Graph, inventory: &Inventory, diagnostics: &mut Diagnostics) {
    let wanting: Vec<NodeIndex> =
        graph.work().filter(|index| graph.task_of(*index).is_some_and(|task| !task.needs.is_empty())).collect();
    if wanting.is_empty() {
        return;
    }
    let by_name = nodes_by_name(graph);
    let mut joins: HashMap<(Arc<str>, Option<String>), NodeIndex> = HashMap::new();
    for index in wanting {
        let Some(task) = graph.task_of(index).cloned() else { continue };
        for need in &task.needs {
            let key = (need.task.value.clone(), need.hosts.as_ref().map(|hosts| hosts.value.clone()));
            let join = match joins.get(&key) {
                Some(join) => *join,
                None => {
                    let Some(nodes) = needed_nodes(need, &by_name, inventory, diagnostics) else { continue };
                    let join = join(graph, index, &nodes, need);
                    joins.insert(key, join);
                    join
                }
            };
            let edge = Edge { kind: EdgeKind::Success, reason: Reason::Needs, span: Some(need.task.span) };
            graph.edge_at(join, index, edge);
        }
    }
}

type Named = HashMap<Arc<str>, Vec<(HostId, NodeIndex)>>;

/// A task is needed by its name or by its path.
fn nodes_by_name(graph: &Graph) -> Named {
    let mut by_name = Named::new();
    for index in graph.work() {
        let (Some(task), Some(host)) = (graph.task_of(index), graph.node(index).host) else { continue };
        let name: Arc<str> = task.name.as_str().into();
        if name != task.path {
            by_name.entry(task.path.clone()).or_default().push((host, index));
        }
        by_name.entry(name).or_default().push((host, index));
    }
    by_name
}

fn needed_nodes(
    need: &Need,
    by_name: &Named,
    inventory: &Inventory,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<NodeIndex>> {
    let Some(nodes) = by_name.get(&need.task.value) else {
        let near = did_you_mean(&need.task.value, by_name.keys().map(|name| &**name));
        diagnostics.push(
            Diagnostic::error(need.task.span, format!("no task is called `{}`", need.task.value)).maybe_help(near),
        );
        return None;
    };
    let Some(hosts) = &need.hosts else { return Some(nodes.iter().map(|(_, node)| *node).collect()) };
    let wanted = super::select(inventory, hosts, diagnostics)?;
    Some(nodes.iter().filter(|(host, _)| wanted.contains(host)).map(|(_, node)| *node).collect())
}

fn join(graph: &mut Graph, like: NodeIndex, nodes: &[NodeIndex], need: &Need) -> NodeIndex {
    let Node { play, batch, .. } = *graph.node(like);
    let join = graph.add(virtual_node(NodeKind::Join, play, batch));
    for node in nodes {
        let edge = Edge { kind: EdgeKind::Success, reason: Reason::Needs, span: Some(need.task.span) };
        graph.edge_at(*node, join, edge);
    }
    join
}

/// Reading another host's registered result waits for it.
pub(super) fn connect_values(graph: &mut Graph, values: &[ValueNeed]) {
    for need in values {
        let of_task =
            |index: &NodeIndex| graph.task_of(*index).is_some_and(|task| std::ptr::eq(&raw const **task, need.task));
        let readers: Vec<NodeIndex> = graph.work().filter(of_task).collect();
        let registers = |index: &NodeIndex| {
            let on_host = graph.hosts_of(graph.node(*index)).iter().any(|host| graph.host(*host).as_str() == need.host);
            on_host && graph.task_of(*index).is_some_and(|task| task.leaves(&need.register))
        };
        let writers: Vec<NodeIndex> = graph.work().filter(registers).collect();
        for reader in readers {
            // What was registered before on the same host is there already.
            for writer in writers.iter().filter(|writer| **writer < reader) {
                graph.edge(*writer, reader, EdgeKind::Success, Reason::Value);
            }
        }
    }
}
