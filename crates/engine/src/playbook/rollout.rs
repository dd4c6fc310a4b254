//! `rollout` on a play: how its hosts take turns, and the tasks that a strategy puts around them.
//!
//! A strategy is a role, `rollout_NAME`, whose files of tasks stand at fixed places:
//!
//! ```text
//! begin                   once for the cluster
//!   hop                   once for each version on the way
//!     next                says who is next; once for each turn
//!       before            the turn of one host begins
//!         (the play)
//!       after             and is over
//!       back              when the play failed there, with `on_failure: rollback`
//!         (the play, with what was there before)
//!       undo              and that is over
//!   settle                all hosts had their turn
//! end                     whatever happened
//! ```
//!
//! Hypervisors have files of their own, `hypervisor_begin` and so on.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    context::Context,
    loader::Loader,
    role::RoleUse,
    types::{Item, Task, collect_tasks},
};
use crate::{
    inventory::is_name,
    model::{Seconds, Span, Spanned, Value},
    source::{Diagnostic, Key, Kind, Map, Node, Vars, did_you_mean, from_node},
};

/// The key `rollout` of a play.
#[derive(Clone, Debug, Deserialize, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RolloutSettings {
    /// The order of hosts, and the gates: `etcd` decides by the state of the cluster; `patroni` by that of PostgreSQL, the primary last;
    /// `serial` uses the order of the inventory, without gates; another name is that of a role `rollout_NAME` of your own.
    pub strategy: Strategy,
    /// Upgrade to the version of the inventory, one minor version at a time.
    #[serde(default)]
    pub upgrade: bool,
    /// Downgrade to the version of the inventory, by etcd's own downgrade from 3.6 on.
    #[serde(default)]
    pub downgrade: bool,
    /// How many hosts of a cluster may have their turn at once; default: 1.
    #[serde(default = "one")]
    pub max_unavailable: usize,
    /// How many clusters roll at the same time; default: 10.
    #[serde(default = "ten")]
    pub max_clusters: usize,
    /// Whether to take a snapshot before the first turn.
    #[serde(default)]
    pub snapshot: Snapshot,
    /// The wait between two turns.
    #[serde(default)]
    #[serde(serialize_with = "as_number")]
    pub pause: Seconds,
    /// Whether to write and read a key all the time, to see what clients see.
    #[serde(default = "yes")]
    pub canary: bool,
    /// The maximum time without an answer to the canary; default: the value of `-e rollout_max_stall`, or 5 seconds.
    #[serde(default = "stall")]
    #[serde(serialize_with = "as_number")]
    pub max_stall: Seconds,
    /// The maximum wait for a gate; default: the value of `-e rollout_timeout`, or 5 minutes.
    #[serde(default = "patience")]
    #[serde(serialize_with = "as_number")]
    pub timeout: Seconds,
    /// What happens when a host fails in its turn. Either way nothing more is started.
    #[serde(default)]
    pub on_failure: OnTurnFailure,
    /// Which rules apply; default: those of an upgrade or a restart.
    #[serde(default)]
    pub profile: Option<Profile>,
    /// Accept that the cluster loses quorum while a member is down (needed for one or two members); default: the value of
    /// `-e rollout_allow_outage`.
    #[serde(default)]
    pub allow_outage: bool,
}

/// The name of a strategy: `rollout_NAME` is its role.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Strategy(String);

impl Strategy {
    /// The one that knows members, their versions, and hypervisors.
    pub fn is_etcd(&self) -> bool {
        self.0 == "etcd"
    }

    fn role(&self) -> String {
        format!("rollout_{}", self.0)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Snapshot {
    #[default]
    None,
    Before,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OnTurnFailure {
    #[default]
    Halt,
    /// Runs the play once more on that host, with the version that it had before.
    Rollback,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    Upgrade,
    Restart,
    /// The quota is used up.
    Nospace,
    /// Certificates are expired.
    Certificate,
}

fn as_number<S: serde::Serializer>(seconds: &Seconds, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(seconds.0.as_secs_f64())
}

fn one() -> usize {
    1
}

fn ten() -> usize {
    10
}

fn yes() -> bool {
    true
}

fn stall() -> Seconds {
    Seconds(std::time::Duration::from_secs(5))
}

fn patience() -> Seconds {
    Seconds(std::time::Duration::from_secs(300))
}

/// A rollout with what its strategy brings.
#[derive(Debug)]
pub struct Rollout {
    pub span: Span,
    pub settings: RolloutSettings,
    usual: Parts,
    /// Those for hypervisors, where the strategy has such.
    of_hypervisors: Parts,
}

/// Which hosts take turns. Hypervisors do only where no other hosts do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TurnsOf {
    /// Members, or any hosts.
    #[default]
    Hosts,
    Hypervisors,
}

/// A list that a strategy registers and the scheduler reads. Checked when the role is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StrategyAnswer {
    /// The file of tasks that registers it.
    part: &'static str,
    pub register: &'static str,
    pub field: &'static str,
}

impl StrategyAnswer {
    /// The versions that a cluster passes, where a rollout changes its version.
    pub const PATH: Self = Self { part: "begin", register: "rollout_path", field: "hops" };
    /// The hosts that still wait for their turn, the next one first. Without it they go in their order.
    pub const NEXT: Self = Self { part: "next", register: "rollout_next", field: "order" };

    fn is_given_by(self, items: &[Item]) -> bool {
        let mut tasks = Vec::new();
        collect_tasks(items, &mut tasks);
        tasks.into_iter().any(|task| {
            task.register.as_ref().is_some_and(|name| &*name.value == self.register)
                && task.module.result.iter().any(|field| field.name == self.field)
        })
    }
}

/// What a strategy puts around turns.
#[derive(Debug, Default)]
pub struct Parts {
    pub begin: Vec<Item>,
    pub hop: Vec<Item>,
    pub next: Vec<Item>,
    pub before: Vec<Item>,
    pub after: Vec<Item>,
    pub back: Vec<Item>,
    pub undo: Vec<Item>,
    pub settle: Vec<Item>,
    pub end: Vec<Item>,
}

impl Parts {
    /// All that the strategy runs, in the order of the first time it does.
    pub(super) fn in_order(&self) -> [&[Item]; 9] {
        let Self { begin, hop, next, before, after, back, undo, settle, end } = self;
        [begin, hop, next, before, after, back, undo, settle, end]
    }
}

impl Rollout {
    /// What the strategy puts around these turns.
    pub fn parts(&self, turns: TurnsOf) -> &Parts {
        match turns {
            TurnsOf::Hosts => &self.usual,
            TurnsOf::Hypervisors => &self.of_hypervisors,
        }
    }

    /// What templates know as `rollout`; `more` is about one step of it.
    pub fn vars(&self, more: &[(&str, Value)]) -> Vars {
        let moves = self.settings.upgrade || self.settings.downgrade;
        let usual = if moves { Profile::Upgrade } else { Profile::Restart };
        let profile = Some(self.settings.profile.unwrap_or(usual));
        let settings = RolloutSettings { profile, ..self.settings.clone() };
        let mut value = serde_json::to_value(&settings).unwrap_or_default();
        if let Some(map) = value.as_object_mut() {
            for name in ["version", "undo"] {
                map.insert(name.to_owned(), Value::Null);
            }
            more.iter().for_each(|(name, value)| drop(map.insert((*name).to_owned(), value.clone())));
        }
        [(Arc::from("rollout"), Node::from_value(self.span, value))].into()
    }
}

impl Loader<'_> {
    pub(super) fn rollout(&mut self, map: &Map, context: &Context) -> Option<Rollout> {
        let (key, node) = map.entry("rollout").filter(|(_, node)| !node.is_null())?;
        let span = key.span;
        let node = self.settle(node, "rollout")?;
        let node = self.settle_entries(with_defaults(node))?;
        let settings: RolloutSettings = match from_node(&node) {
            Ok(settings) => settings,
            Err(problems) => {
                problems.into_iter().for_each(|problem| self.diagnostics.push(problem));
                return None;
            }
        };
        self.check_rollout(&settings, span, map);
        let place = map.get("rollout").and_then(Node::as_map).and_then(|map| map.get("strategy"));
        self.find_strategy(&settings.strategy, place.map_or(span, |node| node.span), context)?;
        // What keeps a cluster from harm is not a matter of tags.
        let context = Context { tags: vec!["always".into()], when: Vec::new(), notify: Vec::new(), ..context.clone() };
        let usual = self.rollout_parts(&settings.strategy, "", span, &context);
        let of_hypervisors = self.rollout_parts(&settings.strategy, "hypervisor_", span, &context);
        self.check_strategy(&settings, &usual, span);
        Some(Rollout { usual, of_hypervisors, span, settings })
    }

    /// Single keys may be left to whoever runs the playbook, too.
    fn settle_entries(&mut self, mut node: Node) -> Option<Node> {
        if let Kind::Map(map) = &mut node.kind {
            let entries = std::mem::take(map).into_iter();
            let settled = entries.map(|(key, value)| Some((key, self.settle(&value, "rollout")?)));
            *map = Map::new(settled.collect::<Option<Vec<_>>>()?);
        }
        Some(node)
    }

    fn check_rollout(&mut self, settings: &RolloutSettings, span: Span, map: &Map) {
        let mut wrong = |message: &str, help: &str| self.diagnostics.push(Diagnostic::error(span, message).help(help));
        if settings.upgrade && settings.downgrade {
            wrong("a rollout goes up or down, not both", "keep `upgrade` or `downgrade`");
        }
        if !settings.strategy.is_etcd() && (settings.upgrade || settings.downgrade) {
            let message = format!("`strategy: {}` does not support versions", settings.strategy.0);
            wrong(&message, "write `strategy: etcd`");
        }
        // The gates of two members could pass at once, and one of them hand the cluster to the other.
        if settings.strategy.0 == "patroni" && settings.max_unavailable > 1 {
            wrong("`strategy: patroni` gives one host a turn at a time", "remove `max_unavailable`");
        }
        if settings.max_unavailable == 0 || settings.max_clusters == 0 {
            wrong("it must be at least 1", "write 1 or more");
        }
        if map.get("serial").is_some_and(|node| !node.is_null()) {
            wrong(
                "`serial` and `rollout` both set the order of hosts",
                "keep `rollout`; `max_unavailable` is the size",
            );
        }
    }

    fn find_strategy(&mut self, strategy: &Strategy, span: Span, context: &Context) -> Option<()> {
        let role = strategy.role();
        if is_name(&strategy.0) && self.has_role(&role, context) {
            return Some(());
        }
        let known = self.known_roles(context);
        let mut known: Vec<&str> = known.iter().filter_map(|role| role.strip_prefix("rollout_")).collect();
        known.sort_unstable();
        known.dedup();
        let near = did_you_mean(&strategy.0, known.iter().copied());
        let help =
            near.unwrap_or_else(|| format!("there are {}; one of your own is a role `{role}`", known.join(", ")));
        let message = format!("there is no strategy `{}`", strategy.0);
        self.diagnostics.push(Diagnostic::error(span, message).help(help));
        None
    }

    /// The scheduler would not find what it reads, and would continue as if the role had said nothing.
    fn check_strategy(&mut self, settings: &RolloutSettings, parts: &Parts, span: Span) {
        // Tasks with mistakes in them are missing here.
        if self.diagnostics.has_errors() {
            return;
        }
        let role = settings.strategy.role();
        let answers = [
            (StrategyAnswer::PATH, &parts.begin, settings.upgrade || settings.downgrade),
            (StrategyAnswer::NEXT, &parts.next, !parts.next.is_empty()),
        ];
        for (answer, items, is_needed) in answers {
            if is_needed && !answer.is_given_by(items) {
                let StrategyAnswer { part, register, field } = answer;
                let message = format!("the role `{role}` does not register `{register}.{field}` in tasks/{part}.yaml");
                let help = format!(
                    "the scheduler reads it there: add `register: {register}` to a task whose module returns `{field}`"
                );
                self.diagnostics.push(Diagnostic::error(span, message).help(help));
            }
        }
    }

    /// The files of tasks whose names begin like this.
    fn rollout_parts(&mut self, strategy: &Strategy, prefix: &str, span: Span, context: &Context) -> Parts {
        let mut part = |name: &str| self.rollout_part(strategy, &format!("{prefix}{name}"), span, context);
        Parts {
            begin: part("begin"),
            hop: part("hop"),
            next: part("next"),
            before: part("before"),
            after: part("after"),
            back: part("back"),
            undo: part("undo"),
            settle: part("settle"),
            end: part("end"),
        }
    }

    fn rollout_part(&mut self, strategy: &Strategy, part: &str, span: Span, context: &Context) -> Vec<Item> {
        let spanned = |text: &str| Spanned::new(Arc::from(text), span);
        let role = RoleUse { name: spanned(&strategy.role()), tasks_from: Some(spanned(part)), ..RoleUse::new(span) };
        match self.role_has(&role, context) {
            true => self.role_items(&role, context),
            false => Vec::new(),
        }
    }
}

/// What the operator says with the command, for a playbook that leaves it open: whether an outage is accepted, how long a gate waits,
/// and how long the cluster may be without an answer.
const SAID: [(&str, &str); 3] = [
    ("allow_outage", "{{ rollout_allow_outage | default(false) | bool }}"),
    ("timeout", "{{ rollout_timeout | default('5m') }}"),
    ("max_stall", "{{ rollout_max_stall | default('5s') }}"),
];

fn with_defaults(mut node: Node) -> Node {
    let span = node.span;
    if let Kind::Map(map) = &mut node.kind {
        for (name, said) in SAID {
            if map.get(name).is_none() {
                map.push(Key { name: name.into(), span }, Node::string(span, said));
            }
        }
    }
    node
}

/// A task as it is in one step of a rollout: more variables, and a path and a name of its own.
pub fn in_step(task: &Task, vars: &Arc<Vars>, step: &str) -> Task {
    let mut task = task.clone();
    task.vars.push(vars.clone());
    if !step.is_empty() {
        task.path = format!("{}/{step}", task.path).into();
        task.name = format!("{} [{step}]", task.name);
    }
    task
}
