//! Names in templates: known, late, or undefined. Undefined is an error before anything runs.
//!
//! Known names are in the inventory, the play, the role or the task. Late ones are registered by a
//! task that runs before, or are facts; their fields are known, so `r.stdot` is an error here too.
//! The check follows variables into the templates of their own values.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{CompileOptions, scope, uses::Uses};
use crate::{
    inventory::{Host, HostId, Inventory},
    playbook::{Expression, Loop, Play, Task, secrets_in_environment},
    source::{Diagnostic, Diagnostics, Node, Sources, Vars, did_you_mean, nearest},
    task::{Library, Sets},
    template::Engine,
};

/// Names the engine adds for every task. `execute` provides them.
pub(crate) const SPECIAL_NAMES: &[&str] = &[
    "hostvars",
    "play_hosts",
    "ansible_play_hosts",
    "ansible_check_mode",
    "ansible_failed_task",
    "ansible_failed_result",
    "role_name",
    "playbook_dir",
    "state_dir",
    "omit",
];

/// What every result has, whatever the module.
const RESULT_FIELDS: &[&str] =
    &["changed", "failed", "skipped", "msg", "rc", "stdout", "stdout_lines", "stderr", "stderr_lines", "unreachable"];

/// A read of another host's registered result: it must wait for that result.
pub(super) struct ValueNeed {
    pub task: *const Task,
    pub host: String,
    pub register: String,
}

/// What a name stands for once a task has run.
#[derive(Default)]
struct Late {
    /// `None` if anything goes (`set_fact`).
    fields: Option<HashSet<String>>,
    hosts: HashSet<HostId>,
    /// Written by a task that tags or `--start-at-task` leave out.
    left_out: bool,
}

pub(super) struct Checker<'c> {
    inventory: &'c Inventory,
    engine: Engine,
    options: &'c CompileOptions,
    fact_fields: &'static [&'static str],
    uses: Uses,
    late: HashMap<String, Late>,
    pub needs: Vec<ValueNeed>,
}

/// One play while its tasks are checked.
struct Scene<'p> {
    play: &'p Play,
    hosts: Arc<[HostId]>,
    /// On how many of the hosts an inventory variable exists.
    counts: HashMap<&'p str, usize>,
    /// The distinct values of an inventory variable on the hosts, once they were asked for.
    values: HashMap<String, Vec<&'p Node>>,
    reads_facts: bool,
}

impl<'c> Checker<'c> {
    pub(super) fn new(inventory: &'c Inventory, options: &'c CompileOptions, library: &Library) -> Self {
        Self {
            inventory,
            engine: Engine::new(),
            options,
            fact_fields: library.facts().map_or(&[], |(_, fields)| fields),
            uses: Uses::default(),
            late: HashMap::new(),
            needs: Vec::new(),
        }
    }

    /// Checks a play on its hosts. Returns whether a template reads facts.
    pub(super) fn play(
        &mut self,
        play: &'c Play,
        tasks: &[&'c Arc<Task>],
        hosts: &[HostId],
        included: &dyn Fn(&Task) -> bool,
        sources: &mut Sources,
        diagnostics: &mut Diagnostics,
    ) -> bool {
        let counts = self.count_names(hosts);
        let mut scene = Scene { play, hosts: hosts.into(), counts, values: HashMap::new(), reads_facts: false };
        for task in tasks {
            let takes_part = included(task);
            if takes_part {
                self.task(&mut scene, task, sources, diagnostics);
            }
            self.produce(task, hosts, !takes_part);
        }
        for handler in &play.handlers {
            self.task(&mut scene, handler, sources, diagnostics);
            self.produce(handler, hosts, false);
        }
        scene.reads_facts
    }

    fn count_names(&self, hosts: &[HostId]) -> HashMap<&'c str, usize> {
        let mut counts: HashMap<&'c str, usize> = HashMap::new();
        for host in hosts {
            let host = self.inventory.host_by_id(*host);
            let names: HashSet<&str> =
                host.layers.iter().chain(&host.builtin).flat_map(|layer| layer.keys().map(|name| &**name)).collect();
            names.into_iter().for_each(|name| *counts.entry(name).or_default() += 1);
        }
        counts
    }

    /// What the task leaves behind for later ones.
    fn produce(&mut self, task: &Task, hosts: &[HostId], left_out: bool) {
        if let Some(name) = &task.register {
            let mut fields: HashSet<String> = RESULT_FIELDS.iter().map(|field| (*field).to_owned()).collect();
            fields.extend(task.module.result.iter().map(|field| field.name.to_owned()));
            fields.extend(task.loops.is_some().then(|| "results".to_owned()));
            fields.extend((!task.until.is_empty() || task.retries > 0).then(|| "attempts".to_owned()));
            fields.extend(task.detach.into_iter().flat_map(|_| ["job".to_owned(), "finished".to_owned()]));
            self.add_late(name, Some(fields), hosts, left_out);
        }
        if matches!(task.module.traits.sets, Sets::Arguments) {
            let names = task.args.as_map().into_iter().flat_map(|map| map.iter());
            names.for_each(|(key, _)| self.add_late(&key.name, None, hosts, left_out));
        }
    }

    fn add_late(&mut self, name: &str, fields: Option<HashSet<String>>, hosts: &[HostId], left_out: bool) {
        let late = self
            .late
            .entry(name.to_owned())
            .or_insert_with(|| Late { fields: Some(HashSet::new()), ..Late::default() });
        if left_out {
            late.left_out |= late.hosts.is_empty();
            return;
        }
        late.left_out = false;
        late.hosts.extend(hosts);
        match (fields, &mut late.fields) {
            (Some(more), Some(known)) => known.extend(more),
            (None, known) => *known = None,
            (Some(_), None) => {}
        }
    }

    fn task(&mut self, scene: &mut Scene<'c>, task: &Task, sources: &mut Sources, diagnostics: &mut Diagnostics) {
        self.secrets(scene, task, diagnostics);
        let found = self.uses.of_task(task, sources);
        let mut seen = HashSet::new();
        for name_use in &found {
            self.check(scene, task, name_use, &mut seen, diagnostics);
        }
    }

    /// The loader knows the playbook's secrets; those of the inventory are seen here.
    fn secrets(&self, scene: &Scene<'c>, task: &Task, diagnostics: &mut Diagnostics) {
        if task.environment.is_empty() {
            return;
        }
        for host in scene.hosts.iter() {
            let host = self.inventory.host_by_id(*host);
            let lookup = |name: &str| written(self.options, scene.play, task, name).or_else(|| host.var(name));
            let problems = secrets_in_environment(task, &lookup);
            if !problems.is_empty() {
                return problems.into_iter().for_each(|problem| diagnostics.push(problem));
            }
        }
    }

    fn check(
        &mut self,
        scene: &mut Scene<'c>,
        task: &Task,
        found: &Found,
        seen: &mut HashSet<*const Node>,
        diagnostics: &mut Diagnostics,
    ) {
        let name = found.name.root();
        if found.local || (binds(task, name) && !found.outside_loop) {
            return;
        }
        if SPECIAL_NAMES.contains(&name) {
            return self.hostvars(task, found, diagnostics);
        }
        if let Some(node) = written(self.options, scene.play, task, name) {
            return self.follow(scene, task, node, found.after_conditions, seen, diagnostics);
        }
        if self.check_late(scene, found, diagnostics) {
            return;
        }
        match scene.counts.get(name).copied().unwrap_or(0) {
            n if n == scene.hosts.len() || found.name.optional => {
                self.follow_inventory(scene, task, found, seen, diagnostics);
            }
            _ if name == "facts" => self.check_fact(scene, found, diagnostics),
            _ => diagnostics_extend(diagnostics, self.undefined(scene, task, found)),
        }
    }

    /// `hostvars['h1'].r` names a host, and waits for `r` on h1, wherever that is registered.
    fn hostvars(&mut self, task: &Task, found: &Found, diagnostics: &mut Diagnostics) {
        let [root, host, rest @ ..] = found.name.path.as_slice() else { return };
        if root != "hostvars" || host == "*" {
            return;
        }
        if self.inventory.host(host).is_none() && !found.name.optional_path {
            let near = did_you_mean(host, self.inventory.hosts().map(|host| host.name.as_str()));
            diagnostics.push(
                Diagnostic::error(found.span, format!("`{host}` is not a host of the inventory")).maybe_help(near),
            );
        }
        if let Some(register) = rest.first().filter(|register| self.late.contains_key(*register)) {
            let need = ValueNeed { task: std::ptr::from_ref(task), host: host.clone(), register: register.clone() };
            self.needs.push(need);
        }
    }

    /// Names inside the value of a variable must be known too, unless the conditions before its use keep a host away from it.
    fn follow(
        &mut self,
        scene: &mut Scene<'c>,
        task: &Task,
        node: &Node,
        after_conditions: usize,
        seen: &mut HashSet<*const Node>,
        diagnostics: &mut Diagnostics,
    ) {
        if !seen.insert(std::ptr::from_ref(node)) {
            return;
        }
        for found in self.uses.of_node(node) {
            self.check(scene, task, &Found { after_conditions, ..found }, seen, diagnostics);
        }
    }

    fn follow_inventory(
        &mut self,
        scene: &mut Scene<'c>,
        task: &Task,
        found: &Found,
        seen: &mut HashSet<*const Node>,
        diagnostics: &mut Diagnostics,
    ) {
        for node in self.inventory_values(scene, found.name.root()) {
            self.follow(scene, task, node, found.after_conditions, seen, diagnostics);
        }
    }

    /// A fleet has few distinct values of a variable, however many hosts share them.
    fn inventory_values(&self, scene: &mut Scene<'c>, name: &str) -> Vec<&'c Node> {
        if let Some(values) = scene.values.get(name) {
            return values.clone();
        }
        let all = scene.hosts.iter().filter_map(|host| self.inventory.host_by_id(*host).var(name));
        let mut seen = HashSet::new();
        let values: Vec<_> = all.filter(|node| seen.insert(std::ptr::from_ref(*node))).collect();
        scene.values.insert(name.to_owned(), values.clone());
        values
    }

    /// Whether the name is a registered result or a set fact; checks its field.
    fn check_late(&self, scene: &Scene<'c>, found: &Found, diagnostics: &mut Diagnostics) -> bool {
        let Some(late) = self.late.get(found.name.root()) else { return false };
        if !scene.hosts.iter().any(|host| late.hosts.contains(host)) {
            let known = scene.counts.contains_key(found.name.root()) || found.name.optional;
            if !known {
                diagnostics.push(not_produced(found, late));
            }
            return !known;
        }
        let (Some(fields), Some(field)) = (&late.fields, found.name.path.get(1)) else { return true };
        if !fields.contains(field) && field != "*" && !found.name.optional_path {
            let mut known: Vec<_> = fields.iter().map(String::as_str).collect();
            known.sort_unstable();
            diagnostics.push(unknown_field(found, field, &known));
        }
        true
    }

    fn check_fact(&self, scene: &mut Scene<'c>, found: &Found, diagnostics: &mut Diagnostics) {
        scene.reads_facts = true;
        let path = found.name.path[1..].join(".");
        // A path may stop at a mapping of facts, and go on below a leaf only.
        let is_leaf = |field: &str| !self.fact_fields.iter().any(|other| other.starts_with(&format!("{field}.")));
        let known = self.fact_fields.iter().any(|field| {
            *field == path
                || field.starts_with(&format!("{path}."))
                || (is_leaf(field) && path.starts_with(&format!("{field}.")))
        });
        if !path.is_empty() && !path.contains('*') && !known {
            diagnostics.push(unknown_field(found, &path, self.fact_fields));
        }
    }

    /// `None` if the conditions keep every host that lacks the name away from it.
    fn undefined(&self, scene: &Scene<'c>, task: &Task, found: &Found) -> Option<Diagnostic> {
        let name = found.name.root();
        let conditions = &task.when[..found.after_conditions.min(task.when.len())];
        let lacking: Vec<_> = scene
            .hosts
            .iter()
            .map(|host| self.inventory.host_by_id(*host))
            .filter(|host| host.var(name).is_none() && !self.kept_away(scene, task, host, conditions))
            .collect();
        if lacking.is_empty() {
            return None;
        }
        if let Some(words) = task.module.cluster_in_words().filter(|_| name == "cluster") {
            return Some(no_member(found, &lacking, &words));
        }
        let message = match lacking.as_slice() {
            all if all.len() == scene.hosts.len() => format!("`{name}` is not defined"),
            some => format!("`{name}` is not defined for {}", who(some)),
        };
        let mut known: Vec<&str> = scene.counts.keys().copied().chain(self.late.keys().map(String::as_str)).collect();
        let roles: Vec<_> = task.role.iter().flat_map(|role| role.chain()).collect();
        let role = roles.into_iter().flat_map(|role| [&role.params, &role.vars, &role.defaults]);
        let layers =
            task.vars.iter().chain(role).chain([&scene.play.vars_files, &scene.play.vars, &self.options.extra_vars]);
        known.extend(layers.flat_map(|layer| layer.keys().map(|name| &**name)));
        known.extend(SPECIAL_NAMES.iter().copied().chain(["facts"]));
        known.sort_unstable();
        let help = did_you_mean(name, known).unwrap_or_else(|| {
            "define it in the inventory, the play's `vars`, or with `-e`; or use `| default(...)`".to_owned()
        });
        Some(Diagnostic::error(found.span, message).help(help))
    }

    /// Whether a condition is false for this host whatever happens, as `'web' in group_names` can be.
    fn kept_away(&self, scene: &Scene<'c>, task: &Task, host: &Host, conditions: &[Expression]) -> bool {
        if conditions.is_empty() {
            return false;
        }
        let vars = [&scene.play.vars, &scene.play.vars_files];
        let scope = scope::before_running(task, host, vars, &self.options.extra_vars);
        conditions.iter().any(|when| self.engine.eval_bool(&when.value, when.span, &scope).is_ok_and(|holds| !holds))
    }
}

/// Whether the task's loop provides the name.
fn binds(task: &Task, name: &str) -> bool {
    let provides = |items: &Loop| &*items.var == name || items.index_var.as_deref() == Some(name);
    task.loops.as_ref().is_some_and(provides)
}

fn diagnostics_extend(diagnostics: &mut Diagnostics, problem: Option<Diagnostic>) {
    problem.into_iter().for_each(|problem| diagnostics.push(problem));
}

pub(super) use super::uses::Found;

/// A variable that the playbook or the command line defines for this task.
fn written<'n>(options: &'n CompileOptions, play: &'n Play, task: &'n Task, name: &str) -> Option<&'n Node> {
    let roles: Vec<_> = task.role.iter().flat_map(|role| role.chain()).collect();
    let of_roles = roles.into_iter().rev().flat_map(|role| [&role.params, &role.vars, &role.defaults]);
    let of_play = [&play.vars_files, &play.vars];
    let layers = [&options.extra_vars].into_iter().chain(task.vars.iter().rev()).chain(of_roles).chain(of_play);
    layers.into_iter().find_map(|layer: &Arc<Vars>| layer.get(name))
}

/// The first of them, and how many more there are.
fn who(hosts: &[&Host]) -> String {
    match hosts {
        [] => String::new(),
        [one] => one.name.to_string(),
        [one, rest @ ..] => format!("{} and {} more", one.name, rest.len()),
    }
}

/// A module asks for the cluster of hosts that have none.
fn no_member(found: &Found, hosts: &[&Host], words: &str) -> Diagnostic {
    let are = if hosts.len() == 1 { "is not a member" } else { "are not members" };
    let message = format!("{} {are} of a cluster", who(hosts));
    Diagnostic::error(found.span, message).help(format!("name the cluster with {words}"))
}

fn not_produced(found: &Found, late: &Late) -> Diagnostic {
    let name = found.name.root();
    if late.left_out {
        let message = format!("`{name}` is registered by a task that this selection leaves out");
        let help = "add the tag of that task, or take off --tags, --skip-tags or --start-at-task";
        return Diagnostic::error(found.span, message).help(help);
    }
    Diagnostic::error(found.span, format!("`{name}` is registered only on other hosts"))
        .help(format!("read it with hostvars['HOST'].{name}"))
}

fn unknown_field(found: &Found, field: &str, known: &[&str]) -> Diagnostic {
    let name = found.name.root();
    let near = nearest(field, known.iter().copied());
    let help =
        near.map_or_else(|| format!("it has: {}", known.join(", ")), |near| format!("did you mean `{name}.{near}`?"));
    Diagnostic::error(found.span, format!("`{name}` has no field `{field}`")).help(help)
}
