//! The graph for people and programs: dot, mermaid, JSON.

use std::{collections::HashMap, fmt::Write as _};

use serde_json::{Value, json};

use super::{Graph, Node, NodeIndex, NodeKind};
use crate::{
    playbook::{On, Task},
    source::Sources,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Dot,
    Mermaid,
    Json,
}

/// What is known of a node before it runs; `None` is unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Foreseen {
    /// Whether its conditions hold.
    pub runs: Option<bool>,
    /// How many items its loop has.
    pub items: Option<usize>,
    /// Where a templated `delegate_to` leads.
    pub target: Option<String>,
}

impl Graph {
    pub fn export(&self, format: Format, sources: &Sources, foreseen: &HashMap<NodeIndex, Foreseen>) -> String {
        match format {
            Format::Dot => self.to_dot(),
            Format::Mermaid => self.to_mermaid(),
            Format::Json => self.to_json(sources, foreseen),
        }
    }

    fn to_dot(&self) -> String {
        let mut out = String::from("digraph etcdrun {\n  rankdir=LR;\n  node [shape=box, fontname=\"sans-serif\"];\n");
        for index in self.indices() {
            let node = self.node(index);
            let label = self.label(index, "\\n").replace('"', "\\\"");
            let shape = if node.kind.is_virtual() { ", shape=point, xlabel=" } else { ", label=" };
            let _ = writeln!(out, "  n{} [id=\"{}\"{shape}\"{label}\"];", index.index(), dot_escape(&self.id(index)));
        }
        for (from, to, reason, style) in self.drawn_edges() {
            let _ = writeln!(out, "  n{from} -> n{to} [label=\"{reason}\"{style}];");
        }
        out.push_str("}\n");
        out
    }

    fn to_mermaid(&self) -> String {
        let mut out = String::from("flowchart LR\n");
        for index in self.indices() {
            let label = self.label(index, "<br>").replace('"', "#quot;");
            let (open, close) = if self.node(index).kind.is_virtual() { ("((\"", "\"))") } else { ("[\"", "\"]") };
            let _ = writeln!(out, "  n{}{open}{label}{close}", index.index());
        }
        for (from, to, reason, style) in self.drawn_edges() {
            let arrow = if style.is_empty() { "-->" } else { "-.->" };
            let _ = writeln!(out, "  n{from} {arrow}|{reason}| n{to}");
        }
        out
    }

    fn to_json(&self, sources: &Sources, foreseen: &HashMap<NodeIndex, Foreseen>) -> String {
        let plays: Vec<_> = self
            .plays
            .iter()
            .map(|play| {
                let hosts: Vec<_> = play.hosts.iter().map(|host| self.host(*host).as_str()).collect();
                let batches: Vec<_> = play.batches.iter().map(Vec::len).collect();
                json!({ "id": &*play.id, "name": &*play.name, "hosts": hosts, "batches": batches })
            })
            .collect();
        let nodes: Vec<_> = self.indices().map(|index| self.node_json(index, sources, foreseen.get(&index))).collect();
        let edges: Vec<_> = self
            .edges_in_order()
            .map(|(from, to, edge)| json!({ "from": self.id(from), "to": self.id(to), "when": edge.kind, "reason": edge.reason }))
            .collect();
        let graph = json!({ "version": 1, "playbook": self.playbook, "plays": plays, "nodes": nodes, "edges": edges });
        let mut text = serde_json::to_string_pretty(&graph).unwrap_or_default();
        text.push('\n');
        text
    }

    fn node_json(&self, index: NodeIndex, sources: &Sources, foreseen: Option<&Foreseen>) -> Value {
        let node = self.node(index);
        let mut value = json!({ "id": self.id(index), "kind": node.kind.name(), "play": &*self.play(node.play).id });
        if let Some(host) = node.host {
            value["host"] = self.host(host).as_str().into();
        }
        if node.shared.is_some() {
            value["hosts"] = self.hosts_of(node).iter().map(|host| self.host(*host).as_str()).collect();
        }
        if let Some(task) = self.task_of(index) {
            value["task"] = task.name.as_str().into();
            value["module"] = task.module.name.into();
            value["place"] = sources.describe(task.span).into();
            let target = foreseen.and_then(|known| known.target.clone());
            value["target"] = target.unwrap_or_else(|| self.target_text(node, task)).into();
            if !task.when.is_empty() {
                value["when"] = task.when.iter().map(|when| when.value.to_string()).collect();
                value["runs"] = foreseen.and_then(|known| known.runs).map_or("unknown".into(), Value::from);
            }
            if task.loops.is_some() {
                value["items"] = foreseen.and_then(|known| known.items).map_or("unknown".into(), Value::from);
            }
        }
        value
    }

    fn target_text(&self, node: &Node, task: &Task) -> String {
        let dynamic = task.delegate_to.as_ref().is_some_and(crate::source::Node::is_template);
        match (node.target, node.host) {
            (Some(target), _) => self.host(target).to_string(),
            _ if dynamic => "unknown".into(),
            _ if task.on.as_ref().is_some_and(|on| on.value == On::Operator) => "operator".into(),
            (None, Some(host)) => self.host(host).to_string(),
            (None, None) => "unknown".into(),
        }
    }

    fn label(&self, index: NodeIndex, newline: &str) -> String {
        let node = self.node(index);
        let Some(task) = self.task_of(index) else {
            return match node.kind {
                NodeKind::PlayStart => self.play(node.play).name.to_string(),
                kind => kind.name().replace('_', " "),
            };
        };
        let hosts = match self.hosts_of(node).as_slice() {
            [one] => self.host(*one).to_string(),
            many => format!("{} hosts", many.len()),
        };
        let target = self.target_text(node, task);
        let place = if target == hosts { hosts } else { format!("{hosts} on {target}") };
        format!("{}{newline}{place}", task.name)
    }

    fn edges_in_order(&self) -> impl Iterator<Item = (NodeIndex, NodeIndex, &super::Edge)> {
        self.dag.edge_indices().filter_map(|edge| {
            let (from, to) = self.dag.edge_endpoints(edge)?;
            Some((from, to, &self.dag[edge]))
        })
    }

    fn drawn_edges(&self) -> impl Iterator<Item = (usize, usize, String, &'static str)> {
        self.edges_in_order().map(|(from, to, edge)| {
            let style = if edge.kind == super::EdgeKind::Success { "" } else { ", style=dashed" };
            (from.index(), to.index(), format!("{:?}", edge.reason).to_lowercase(), style)
        })
    }
}

fn dot_escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"")
}
