//! How groups contain each other: order, depth, members, cycles.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use indexmap::IndexMap;

use super::types::HostId;
use crate::{
    model::{Span, Spanned},
    source::{Diagnostic, Diagnostics},
};

/// One group with its own hosts and the groups inside it.
#[derive(Debug, Default)]
pub(super) struct Level {
    pub(super) hosts: Vec<HostId>,
    /// Positions of the children, and where the parent names them.
    pub(super) children: Vec<Spanned<usize>>,
    pub(super) depth: usize,
    pub(super) members: Vec<HostId>,
}

/// All groups by name.
pub(super) type Levels = IndexMap<Arc<str>, Level>;

/// Fills in depth and members. Groups that contain themselves are reported and cut apart.
pub(super) fn settle(levels: &mut Levels, hosts: usize, diagnostics: &mut Diagnostics) {
    let order = parents_first(levels, diagnostics);
    for &parent in &order {
        let depth = levels[parent].depth + 1;
        let children: Vec<usize> = levels[parent].children.iter().map(|child| child.value).collect();
        for child in children {
            levels[child].depth = levels[child].depth.max(depth);
        }
    }
    // A mark per host instead of a set per group: groups are many, and mostly small.
    let mut marks = vec![usize::MAX; hosts];
    for &group in order.iter().rev() {
        let level = &levels[group];
        let inherited = level.children.iter().flat_map(|child| &levels[child.value].members);
        let mut members = Vec::with_capacity(level.hosts.len());
        for &host in level.hosts.iter().chain(inherited) {
            if std::mem::replace(&mut marks[host.index()], group) != group {
                members.push(host);
            }
        }
        levels[group].members = members;
    }
}

/// An order in which every parent comes before its children.
fn parents_first(levels: &mut Levels, diagnostics: &mut Diagnostics) -> Vec<usize> {
    loop {
        let mut waiting = vec![0_usize; levels.len()];
        levels.values().flat_map(|level| &level.children).for_each(|child| waiting[child.value] += 1);
        let mut order: Vec<usize> = (0..levels.len()).filter(|&group| waiting[group] == 0).collect();
        let mut next = 0;
        while next < order.len() {
            for child in &levels[order[next]].children {
                waiting[child.value] -= 1;
                if waiting[child.value] == 0 {
                    order.push(child.value);
                }
            }
            next += 1;
        }
        if order.len() == levels.len() {
            return order;
        }
        let stuck: Vec<usize> = (0..levels.len()).filter(|&group| waiting[group] > 0).collect();
        cut_cycles(levels, &stuck, diagnostics);
    }
}

/// Reports the cycles among groups that wait for each other, and opens them.
fn cut_cycles(levels: &mut Levels, stuck: &[usize], diagnostics: &mut Diagnostics) {
    // Every stuck group has a stuck parent, so walking upwards must come round.
    let mut parents: HashMap<usize, (usize, Span)> = HashMap::new();
    for &parent in stuck {
        parents.extend(levels[parent].children.iter().map(|child| (child.value, (parent, child.span))));
    }
    let mut seen: HashSet<usize> = HashSet::new();
    for &group in stuck {
        let cycle = walk_up(group, &parents, &mut seen);
        let Some(&(child, span)) = cycle.first() else { continue };
        diagnostics.push(describe(levels, &cycle));
        let parent = parents[&child].0;
        levels[parent].children.retain(|edge| (edge.value, edge.span) != (child, span));
    }
}

/// The cycle above a group, child first; empty if these groups were walked before.
fn walk_up(mut group: usize, parents: &HashMap<usize, (usize, Span)>, seen: &mut HashSet<usize>) -> Vec<(usize, Span)> {
    let mut path: IndexMap<usize, Span> = IndexMap::new();
    while seen.insert(group) {
        let Some(&(parent, span)) = parents.get(&group) else { return Vec::new() };
        path.insert(group, span);
        group = parent;
    }
    let first = path.get_index_of(&group).unwrap_or(path.len());
    path.into_iter().skip(first).collect()
}

/// The cycle comes child first; people read it parent first.
fn describe(levels: &Levels, cycle: &[(usize, Span)]) -> Diagnostic {
    let name = |group: usize| levels.get_index(group).map_or("", |(name, _)| &**name);
    let mut names: Vec<&str> = cycle.iter().rev().map(|(group, _)| name(*group)).collect();
    names.rotate_right(1);
    names.push(names[0]);
    let message = format!("groups contain each other in a cycle: {}", names.join(" → "));
    let mut edges = cycle.iter().rev().map(|(group, span)| (*span, name(*group))).collect::<Vec<_>>();
    edges.sort_unstable();
    let problem = Diagnostic::error(edges[0].0, message).help("remove one of these children");
    edges[1..].iter().fold(problem, |problem, (span, name)| problem.related(*span, format!("`{name}` is a child here")))
}
