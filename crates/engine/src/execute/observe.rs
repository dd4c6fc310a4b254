//! What can be said of nodes before they run: whether their conditions hold, how many items they have.
//!
//! Without asking the hosts, what follows from the inventory and the playbook; with asking, also what
//! follows from facts. What depends on a result that is not there yet stays unknown, never a guess.

use std::{collections::HashMap, sync::Arc};

use futures_util::{StreamExt, stream};

use super::{
    Run,
    context::{Context, Watch},
    verdict::all_hold,
};
use crate::{
    graph::{Foreseen, NodeIndex},
    inventory::HostId,
    playbook::Task,
    remote::Surroundings,
    source::{Kind, Map, Node},
    task::{Action, BuildContext},
    template::Scope,
};

/// What is known of each node that stands for work. `ask` lets it connect and gather facts.
pub async fn observe(run: Run, ask: bool) -> HashMap<NodeIndex, Foreseen> {
    let context = Arc::new(Context::new(run));
    if ask {
        gather(&context).await;
    }
    let foreseen = context.graph.work().map(|index| (index, foresee(&context, index))).collect();
    context.fleet.close(false).await;
    foreseen
}

async fn gather(context: &Arc<Context>) {
    let mut hosts: Vec<HostId> = context.graph.plays.iter().flat_map(|play| play.hosts.iter().copied()).collect();
    hosts.sort_unstable();
    hosts.dedup();
    let asking = hosts.into_iter().map(|host| facts_of(context, host));
    stream::iter(asking).buffer_unordered(context.options.forks.max(1)).collect::<Vec<()>>().await;
}

/// A host that does not answer leaves its facts unknown.
async fn facts_of(context: &Arc<Context>, host: HostId) {
    let (Some((module, _)), Some(play)) = (context.graph.library.facts(), context.graph.plays.first()) else { return };
    let args = Node::new(play.span, Kind::Map(Map::default()));
    let scope = context.host_scope(host, &Watch::default());
    let build = BuildContext {
        engine: &context.engine,
        scope: &scope,
        file_paths: &[],
        template_paths: &[],
        check_mode: true,
        sources: &context.sources,
        span: play.span,
    };
    let Ok((_, Action::Remote(payload))) = module.build(&args, &build) else { return };
    let session = context.fleet.link(host).session(Surroundings { check_mode: true, ..Surroundings::default() });
    if let Ok(outcome) = session.run_one(payload, true).await
        && let Some(facts) = outcome.data.get("facts")
    {
        context.registered.remember(host, "facts", facts.clone());
    }
}

fn foresee(context: &Arc<Context>, index: NodeIndex) -> Foreseen {
    let node = context.graph.node(index);
    let (Some(task), Some(host)) = (context.graph.task_of(index), node.host) else { return Foreseen::default() };
    let scope = context.scope(node.play, host, task);
    let runs = match &task.loops {
        // A condition of a loop may speak of the item.
        Some(_) if !task.when.is_empty() => None,
        _ => all_hold(context, &task.when, &scope).ok(),
    };
    Foreseen { runs, items: items(context, task, &scope), target: target(context, task, &scope) }
}

fn items(context: &Context, task: &Task, scope: &Scope) -> Option<usize> {
    let list = context.engine.render_node(&task.loops.as_ref()?.items, scope).ok()?;
    list.as_seq().map(<[Node]>::len)
}

fn target(context: &Context, task: &Task, scope: &Scope) -> Option<String> {
    let name = context.engine.render_node(task.delegate_to.as_ref()?, scope).ok()?;
    name.as_str().map(str::to_owned)
}
