//! A play with `rollout`: its hosts take turns, cluster by cluster, step by step.
//!
//! Who is next is decided while it runs. So the nodes of the hosts' turns are not tied to each other; what holds them
//! back are nodes that the scheduler lets through:
//!
//! ```text
//! RolloutStart → begin → Hop → hop → Free → next → Grant → Free → next → Grant …  (as often as there are hosts)
//!                              └──→ TurnStart → before → the play → after → TurnEnd   (for each host)
//!                                   all of these → settle → the Hop behind → … → end → RolloutEnd
//! ```

use std::sync::Arc;

use super::chain::{Batch, Builder, Lane, virtual_node};
use crate::{
    graph::{EdgeKind, NodeIndex, NodeKind, Reason, RolloutGroup, RolloutStep, Turn, Undo},
    inventory::{Cluster, HostId, HostKind, Inventory},
    model::Version,
    playbook::{Item, OnTurnFailure, Play, Rollout, Task, TurnsOf, in_step},
    source::{Diagnostic, Diagnostics, Node, Vars},
};

/// What the member ran when the step began: seen before the first turn, so a run that goes on knows it as well.
const BEFORE: &str = "{{ rollout_path.before[rollout.version][inventory_hostname] }}";

/// What a step of a rollout adds to the tasks in it.
#[derive(Clone)]
pub(super) struct Variant {
    vars: Arc<Vars>,
    /// Tells its nodes from those of other steps.
    step: Arc<str>,
}

/// Hosts that take turns among each other: the members of a cluster, or all that belong to none.
pub(super) fn groups(inventory: &Inventory, hosts: &[HostId]) -> Vec<Vec<HostId>> {
    let mut groups: indexmap::IndexMap<Option<String>, Vec<HostId>> = indexmap::IndexMap::new();
    for host in hosts {
        groups.entry(cluster_of(inventory, *host).map(|cluster| cluster.name.to_string())).or_default().push(*host);
    }
    groups.into_values().collect()
}

fn cluster_of(inventory: &Inventory, host: HostId) -> Option<&Cluster> {
    inventory.cluster(inventory.host_by_id(host).cluster()?.as_str())
}

/// Whether only hypervisors take turns: then those of all clusters on them are taken.
pub(super) fn turns_of(inventory: &Inventory, play: &Play, hosts: &[HostId]) -> TurnsOf {
    let knows_them = play.rollout.as_ref().is_some_and(|rollout| rollout.settings.strategy.is_etcd());
    let is_hypervisor = |host: &HostId| inventory.host_by_id(*host).kind == HostKind::Hypervisor;
    if knows_them && hosts.iter().all(is_hypervisor) { TurnsOf::Hypervisors } else { TurnsOf::Hosts }
}

/// What can be said of a rollout before it is built.
pub(super) fn check(
    inventory: &Inventory,
    play: &Play,
    turns: TurnsOf,
    hosts: &[HostId],
    diagnostics: &mut Diagnostics,
) {
    let Some(rollout) = &play.rollout else { return };
    if turns == TurnsOf::Hypervisors {
        if rollout.settings.upgrade || rollout.settings.downgrade {
            let message = "hypervisors have no version of etcd to go to";
            let help = "name clusters or members under `hosts`";
            diagnostics.push(Diagnostic::error(rollout.span, message).help(help));
        }
    } else if rollout.settings.strategy.is_etcd() {
        let strangers: Vec<_> = hosts.iter().filter(|host| cluster_of(inventory, **host).is_none()).collect();
        if let Some(first) = strangers.first() {
            let name = &inventory.host_by_id(**first).name;
            let message = format!("`strategy: etcd` rolls members of clusters, and {name} is none");
            let help = "name clusters or members under `hosts`, or hypervisors and nothing else; for other hosts write `strategy: serial`";
            diagnostics.push(Diagnostic::error(rollout.span, message).help(help));
        }
    }
    for need in play.tasks(turns).into_iter().flat_map(|task| &task.needs) {
        let help = "who goes first is decided while it runs; put the task into a play of its own";
        diagnostics.push(Diagnostic::error(need.task.span, "`needs` cannot stand in a rollout").help(help));
    }
    if rollout.settings.upgrade || rollout.settings.downgrade {
        for group in groups(inventory, hosts) {
            let cluster = group.first().and_then(|host| cluster_of(inventory, *host));
            if let Some(problem) = cluster.and_then(|cluster| versions(inventory, cluster, rollout).err()) {
                diagnostics.push(*problem);
            }
        }
    }
}

/// The versions that a cluster may have to go through to the one of the inventory: those of the catalogue on the way.
/// Which of them it needs is seen when it runs.
fn versions(inventory: &Inventory, cluster: &Cluster, rollout: &Rollout) -> Result<Vec<Version>, Box<Diagnostic>> {
    let section = cluster.sections.get("etcd");
    let node = section.and_then(|node| node.as_map()?.get("version"));
    let target = node.and_then(Node::as_str).and_then(|text| text.parse::<Version>().ok());
    let Some(target) = target else {
        let span = node.map(|node| node.span).or(cluster.span);
        let message = format!("the cluster `{}` has no `etcd.version` to go to", cluster.name);
        return Err(Box::new(Diagnostic::error(span, message).help("write it out, like 3.6.15")));
    };
    let down = rollout.settings.downgrade;
    let on_the_way =
        |version: &Version| if down { version.series() > target.series() } else { version.series() < target.series() };
    let known = inventory.etcd_releases.keys().filter_map(|name| name.parse::<Version>().ok());
    let mut versions: Vec<Version> = known.filter(on_the_way).chain([target]).collect();
    versions.sort_unstable();
    if down {
        versions.reverse();
    }
    Ok(versions)
}

impl Builder {
    /// The task as it is in the step that is being built.
    pub(super) fn variant(&mut self, batch: &Batch<'_>, task: &Arc<Task>) -> Arc<Task> {
        let Some(Variant { vars, step }) = &batch.variant else { return task.clone() };
        let key = (Arc::as_ptr(task), Arc::as_ptr(vars));
        self.variants.entry(key).or_insert_with(|| Arc::new(in_step(task, vars, step))).clone()
    }

    /// All turns of the hosts of one group.
    pub(super) fn rollout(&mut self, batch: &mut Batch<'_>, rollout: &Rollout) {
        let group = u32::try_from(self.graph.rollouts.len()).unwrap_or(u32::MAX);
        let hosts: Vec<HostId> = batch.lanes.iter().map(|lane| lane.host).collect();
        let cluster = hosts.first().and_then(|host| cluster_of(batch.inventory, *host));
        self.graph.rollouts.push(RolloutGroup {
            play: batch.index,
            name: cluster.map_or_else(|| batch.play.name.as_str().into(), |cluster| cluster.name.to_string().into()),
            hosts,
            max_groups: rollout.settings.max_clusters,
        });
        let moves = rollout.settings.upgrade || rollout.settings.downgrade;
        let versions = match cluster.filter(|_| moves).map(|cluster| versions(batch.inventory, cluster, rollout)) {
            Some(Ok(versions)) => versions.into_iter().map(Some).collect(),
            // What is wrong with it has been said.
            Some(Err(_)) => Vec::new(),
            None => vec![None],
        };
        self.gather(batch, NodeKind::RolloutStart(group));
        let starts = self.block_starts(batch);
        self.gates(batch, &rollout.parts(batch.turns).begin);
        for version in versions {
            self.step(batch, rollout, group, version);
        }
        let body = batch.lanes.iter().map(|lane| lane.tips.iter().map(|(node, _)| *node).collect()).collect();
        let none = vec![Vec::new(); starts.len()];
        batch.forced = true;
        let always = self.always_part(batch, &rollout.parts(batch.turns).end, &starts, &[&body]);
        batch.forced = false;
        self.block_ends(batch, starts, body, vec![None; none.len()], none, always);
        let last = self.graph.add(virtual_node(NodeKind::RolloutEnd(group), batch.index, batch.number));
        for (tip, _) in batch.lanes.iter().flat_map(Lane::waits_for) {
            self.graph.edge(tip, last, EdgeKind::Always, Reason::Rollout);
        }
        self.note_ends(batch);
    }

    /// Tasks of the strategy, which no tag and no start leaves out.
    fn gates(&mut self, batch: &mut Batch<'_>, items: &[Item]) {
        batch.forced = true;
        self.items(batch, items);
        batch.forced = false;
    }

    /// One node behind all lanes, and in front of what follows in each of them.
    fn gather(&mut self, batch: &mut Batch<'_>, kind: NodeKind) -> NodeIndex {
        let node = self.graph.add(virtual_node(kind, batch.index, batch.number));
        let before: indexmap::IndexSet<_> =
            batch.lanes.iter().flat_map(Lane::waits_for).map(|(tip, kind)| (tip, kind == EdgeKind::Branch)).collect();
        for (tip, is_branch) in before {
            let kind = if is_branch { EdgeKind::Branch } else { EdgeKind::Success };
            self.graph.edge(tip, node, kind, Reason::Rollout);
        }
        batch.lanes.iter_mut().for_each(|lane| lane.tips = vec![(node, EdgeKind::Success)]);
        node
    }

    /// Each host has its turn.
    fn step(&mut self, batch: &mut Batch<'_>, rollout: &Rollout, group: u32, version: Option<Version>) {
        let number = u32::try_from(self.graph.steps.len()).unwrap_or(u32::MAX);
        let at_once = self.at_once(batch, rollout);
        self.graph.steps.push(RolloutStep { group, at_once, version, turns: Vec::new() });
        batch.variant = Some(self.step_variant(rollout, version, false));
        let gate = self.gather(batch, NodeKind::Hop(number));
        let outer: Vec<_> = batch.lanes.iter_mut().map(|lane| lane.branch.replace(gate)).collect();
        self.gates(batch, &rollout.parts(batch.turns).hop);
        self.gather(batch, NodeKind::Join);
        let opened = batch.lanes.clone();
        self.choices(batch, rollout, number);
        for (position, lane) in opened.into_iter().enumerate() {
            let turn = Batch { lanes: vec![lane], ..batch.clone() };
            let end = self.turn(turn, rollout, number, version);
            batch.lanes[position].tips.push((end, EdgeKind::Success));
        }
        self.gather(batch, NodeKind::Join);
        self.gates(batch, &rollout.parts(batch.turns).settle);
        self.gather(batch, NodeKind::Join);
        for (lane, branch) in batch.lanes.iter_mut().zip(outer) {
            lane.branch = branch;
        }
        batch.variant = None;
    }

    /// As many as the playbook says, and no more than leave a majority: gates of turns that begin together do not see
    /// each other.
    fn at_once(&self, batch: &Batch<'_>, rollout: &Rollout) -> usize {
        let settings = &rollout.settings;
        let cluster = batch.lanes.first().and_then(|lane| cluster_of(batch.inventory, lane.host));
        if batch.turns == TurnsOf::Hypervisors && !settings.allow_outage {
            return 1;
        }
        match cluster.filter(|_| settings.strategy.is_etcd() && !settings.allow_outage) {
            Some(cluster) => settings.max_unavailable.min((cluster.members.len().saturating_sub(1) / 2).max(1)),
            None => settings.max_unavailable,
        }
    }

    /// For as many turns as there are: wait until one is free, ask who is next, and give it away.
    fn choices(&mut self, batch: &mut Batch<'_>, rollout: &Rollout, step: u32) {
        for round in 0..batch.lanes.len() {
            self.gather(batch, NodeKind::Free(step));
            batch.round = u16::try_from(round).unwrap_or(u16::MAX);
            self.gates(batch, &rollout.parts(batch.turns).next);
            self.gather(batch, NodeKind::Grant(step));
        }
        batch.round = 0;
    }

    /// The turn of one host; returns where it ends.
    fn turn(&mut self, mut batch: Batch<'_>, rollout: &Rollout, step: u32, version: Option<Version>) -> NodeIndex {
        let Some(host) = batch.lanes.first().map(|lane| lane.host) else { return NodeIndex::end() };
        let start = self.gather(&mut batch, NodeKind::TurnStart(step));
        self.graph.dag[start].host = Some(host);
        let (first, turns) = (self.graph.len(), batch.turns);
        let before = self.noted(|builder| builder.gates(&mut batch, &rollout.parts(turns).before));
        let rolls_back = rollout.settings.on_failure == OnTurnFailure::Rollback;
        let starts = if rolls_back { self.block_starts(&mut batch) } else { Vec::new() };
        batch.rescues += usize::from(rolls_back);
        self.sections(&mut batch);
        let after = self.noted(|builder| builder.gates(&mut batch, &rollout.parts(turns).after));
        batch.rescues -= usize::from(rolls_back);
        let undo = rolls_back.then(|| self.undo(&mut batch, rollout, starts, version));
        let nodes = first..self.graph.len();
        let end = self.graph.add(virtual_node(NodeKind::TurnEnd(step), batch.index, batch.number));
        self.graph.dag[end].host = Some(host);
        let tips = batch.lanes.iter().flat_map(|lane| lane.tips.iter().map(|(tip, _)| *tip));
        for tip in [start].into_iter().chain(tips).collect::<indexmap::IndexSet<_>>() {
            self.graph.edge(tip, end, EdgeKind::Always, Reason::Rollout);
        }
        if let Some(step) = self.graph.steps.get_mut(step as usize) {
            step.turns.push(Turn { host, nodes, before, after, undo });
        }
        end
    }

    /// The play once more, as it was before this turn.
    fn undo(
        &mut self,
        batch: &mut Batch<'_>,
        rollout: &Rollout,
        starts: Vec<NodeIndex>,
        version: Option<Version>,
    ) -> Undo {
        let body: Vec<Vec<NodeIndex>> =
            batch.lanes.iter().map(|lane| lane.tips.iter().map(|(node, _)| *node).collect()).collect();
        let forwards = batch.variant.replace(self.step_variant(rollout, version, true));
        let mut undo = Undo { gates: 0..0, word: None };
        let (gates, rescue) = self.rescue_with(batch, &starts, &body, |builder, batch| {
            undo.gates = builder.noted(|builder| builder.gates(batch, &rollout.parts(batch.turns).back));
            builder.sections(batch);
            let mut said = builder.noted(|builder| builder.gates(batch, &rollout.parts(batch.turns).undo));
            undo.word = said.rfind(|index| !builder.graph.node(NodeIndex::new(*index)).kind.is_virtual());
        });
        batch.variant = forwards;
        let always = vec![Vec::new(); starts.len()];
        self.block_ends(batch, starts, body, gates, rescue, always);
        undo
    }

    /// The indices of the nodes that it adds.
    fn noted(&mut self, add: impl FnOnce(&mut Self)) -> std::ops::Range<usize> {
        let first = self.graph.len();
        add(self);
        first..self.graph.len()
    }

    fn step_variant(&mut self, rollout: &Rollout, version: Option<Version>, undo: bool) -> Variant {
        let mut more = vec![("undo", undo.into())];
        more.extend(version.map(|version| ("version", version.to_string().into())));
        let mut vars = rollout.vars(&more);
        let mut set = |name: &str, node: Node| drop(vars.insert(name.into(), node));
        if let Some(version) = version {
            let text = if undo { BEFORE.to_owned() } else { version.to_string() };
            set("etcd_version", Node::string(rollout.span, text));
            set("etcd_replace_running", Node::string(rollout.span, "true"));
        }
        if rollout.settings.allow_outage {
            // Three members or more can do without one: there, what is accepted is no reason to restart without a look.
            let is_small = "{{ cluster.members | length <= 2 }}";
            set("etcd_allow_outage", Node::string(rollout.span, is_small));
        }
        let step: Arc<str> = match (version, undo) {
            (None, false) => "".into(),
            (None, true) => "undo".into(),
            (Some(version), false) => version.to_string().into(),
            (Some(version), true) => format!("{version}/undo").into(),
        };
        Variant { vars: Arc::new(vars), step }
    }
}
