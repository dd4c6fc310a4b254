//! Compile: a pure function from inventory and playbook to a graph. Same input, same bytes.
//!
//! In: a loaded inventory, a loaded playbook, the command line's selection. Out: a `Graph`, or
//! diagnostics: empty patterns, undefined names, unknown needs, cycles. Never connects anywhere.

mod batches;
mod chain;
mod files;
mod names;
mod needs;
mod ready;
mod rollout;
mod scope;
mod selection;
mod targets;
mod uses;

use std::sync::Arc;

pub(crate) use names::SPECIAL_NAMES;
pub use ready::missing;
pub(crate) use scope::{top_layers, written_layers};
pub use selection::Selection;
pub(crate) use targets::OPERATOR_NAMES;

use crate::{
    graph::{Graph, find_cycle},
    inventory::{HostId, Inventory, Pattern},
    model::Spanned,
    playbook::{HostOrder, Play, Playbook, Task},
    source::{Diagnostic, Diagnostics, Kind, Map, Node, Sources, Vars},
    task::Library,
};

/// What the command line says about which part of the work to do.
#[derive(Clone, Debug, Default)]
pub struct CompileOptions {
    pub limit: Option<Pattern>,
    pub selection: Selection,
    pub extra_vars: Arc<Vars>,
}

/// Compiles the whole playbook. `None` if `diagnostics` has errors; of a broken one, only the host patterns are checked.
pub fn compile(
    inventory: &Inventory,
    playbook: &Playbook,
    options: &CompileOptions,
    sources: &mut Sources,
    diagnostics: &mut Diagnostics,
) -> Option<Graph> {
    if playbook.broken {
        playbook.plays.iter().for_each(|play| drop(select(inventory, &play.hosts, diagnostics)));
        return None;
    }
    let limit = limited_hosts(inventory, options, diagnostics);
    let mut builder = chain::Builder::new(inventory, playbook, options.selection.clone());
    let mut names = names::Checker::new(inventory, options, &playbook.library);
    for play in &playbook.plays {
        let Some(mut hosts) = select(inventory, &play.hosts, diagnostics) else { continue };
        // An inventory need not have guests.
        let is_without = hosts.is_empty() && ["guests", "guests:!members"].contains(&play.hosts.value.as_str());
        if let Some(limit) = &limit {
            hosts.retain(|host| limit.contains(host));
        }
        if hosts.is_empty() {
            if !is_without {
                diagnostics.push(Diagnostic::warning(play.hosts.span, "no hosts are left for this play"));
            }
            continue;
        }
        order(inventory, &mut hosts, play.order);
        let turns = rollout::turns_of(inventory, play, &hosts);
        let tasks = play.tasks(turns);
        targets::check(inventory, tasks.iter().copied().chain(&play.handlers), &hosts, diagnostics);
        rollout::check(inventory, play, turns, &hosts, diagnostics);
        let included = |task: &Task| options.selection.wants(task);
        let taking_part = || tasks.iter().copied().filter(|task| included(task));
        files::check(taking_part().chain(&play.handlers), sources, diagnostics);
        ready::check(inventory, taking_part(), &hosts, &options.extra_vars, diagnostics);
        let reads_facts = names.play(play, &tasks, &hosts, &included, sources, diagnostics);
        let facts = if reads_facts { facts_task(&playbook.library, play) } else { None };
        builder.play(inventory, play, turns, hosts, facts.as_ref());
    }
    if let Some(problem) = builder.missing_start(playbook) {
        diagnostics.push(problem);
    }
    let graph = builder.finish(inventory, &names.needs, diagnostics);
    report_cycle(&graph, sources, diagnostics);
    if graph.work().next().is_none() && !options.selection.tags.is_empty() {
        let tags = options.selection.tags.join(", ");
        diagnostics.push(Diagnostic::warning(None, format!("no task has one of the tags: {tags}")));
    }
    (!diagnostics.has_errors()).then_some(graph)
}

/// The node that gathers facts is made here, not written in a playbook.
fn facts_task(library: &Library, play: &Play) -> Option<Arc<Task>> {
    let (module, _) = library.facts()?;
    let args = Node::new(play.span, Kind::Map(Map::default()));
    Some(Arc::new(Task::bare("Gather facts", module, args)))
}

fn limited_hosts(
    inventory: &Inventory,
    options: &CompileOptions,
    diagnostics: &mut Diagnostics,
) -> Option<Vec<HostId>> {
    let pattern = options.limit.as_ref()?;
    match inventory.select(pattern) {
        Ok(hosts) => {
            if hosts.is_empty() {
                diagnostics.push(Diagnostic::error(None, "the limit leaves no hosts"));
            }
            Some(hosts)
        }
        Err(problems) => {
            problems.into_iter().for_each(|problem| diagnostics.push(problem));
            Some(Vec::new())
        }
    }
}

/// The hosts of a pattern as it is written in a playbook.
fn select(inventory: &Inventory, pattern: &Spanned<String>, diagnostics: &mut Diagnostics) -> Option<Vec<HostId>> {
    let parsed = Pattern::parse(&pattern.value, pattern.span).map_err(|problem| vec![problem]);
    match parsed.and_then(|pattern| inventory.select(&pattern)) {
        Ok(hosts) => Some(hosts),
        Err(problems) => {
            problems.into_iter().for_each(|problem| diagnostics.push(problem));
            None
        }
    }
}

fn order(inventory: &Inventory, hosts: &mut [HostId], order: HostOrder) {
    match order {
        HostOrder::Inventory => {}
        HostOrder::ReverseInventory => hosts.reverse(),
        HostOrder::Sorted => hosts.sort_by_key(|host| inventory.host_by_id(*host).name.clone()),
        HostOrder::ReverseSorted => {
            hosts.sort_by_key(|host| inventory.host_by_id(*host).name.clone());
            hosts.reverse();
        }
    }
}

fn report_cycle(graph: &Graph, sources: &Sources, diagnostics: &mut Diagnostics) {
    let Some(cycle) = find_cycle(graph) else { return };
    let told: Vec<_> = cycle.0.iter().filter(|index| !graph.node(**index).kind.is_virtual()).collect();
    let names: Vec<_> = told.iter().map(|index| graph.id(**index)).collect();
    let circle = names.iter().chain(names.first()).cloned().collect::<Vec<_>>().join("\n  -> ");
    let needs =
        cycle.0.iter().zip(cycle.0.iter().cycle().skip(1)).filter_map(|(from, to)| {
            graph.successors(*from).find(|(node, _)| node == to).and_then(|(_, edge)| edge.span)
        });
    let first = needs.clone().next();
    let mut diagnostic = Diagnostic::error(first, format!("tasks wait for each other in a circle:\n  {circle}"))
        .help("remove one of these `needs`, or move the task that is needed further up");
    for index in told {
        if let Some(task) = graph.task_of(*index) {
            diagnostic = diagnostic.related(task.span, format!("`{}` ({})", task.name, sources.describe(task.span)));
        }
    }
    diagnostics.push(diagnostic);
}
