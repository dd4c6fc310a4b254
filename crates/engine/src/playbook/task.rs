//! Lists of tasks: blocks, module calls, `meta`.

use std::{sync::Arc, time::Duration};

use super::{
    Place,
    call::ModuleCall,
    context::Context,
    keywords::Holder,
    loader::{Loader, head},
    types::{Block, Item, Loop, Need, Task},
};
use crate::{
    model::{Seconds, Span},
    source::{Diagnostic, Key, Kind, Map, Node},
};

const DEFAULT_RETRIES: u32 = 3;
const DEFAULT_DELAY: Duration = Duration::from_secs(5);
const DEFAULT_POLL: Duration = Duration::from_secs(10);

/// What one entry of a task list is.
enum Entry {
    Block,
    Import,
    Role,
    Meta,
    Call,
}

impl Entry {
    fn of(map: &Map) -> Self {
        let has = |names: &[&str]| map.iter().any(|(key, _)| names.contains(&short_name(&key.name)));
        match () {
            () if has(&["block", "rescue", "always"]) => Self::Block,
            () if has(&["import_tasks", "include_tasks"]) => Self::Import,
            () if has(&["import_role", "include_role"]) => Self::Role,
            () if has(&["meta"]) => Self::Meta,
            () => Self::Call,
        }
    }
}

/// Ansible's long names are accepted for what ships with it.
pub(super) fn short_name(name: &str) -> &str {
    name.strip_prefix("ansible.builtin.").or_else(|| name.strip_prefix("ansible.legacy.")).unwrap_or(name)
}

impl Loader<'_> {
    /// A list of tasks, with imports and roles expanded. `holder` says whether they are handlers.
    pub(super) fn items(&mut self, node: &Node, context: &Context, holder: Holder) -> Vec<Item> {
        let entries = self.list(node, "a list of tasks");
        entries.iter().flat_map(|entry| self.item(entry, context, holder)).collect()
    }

    fn item(&mut self, node: &Node, context: &Context, holder: Holder) -> Vec<Item> {
        let Some(map) = self.mapping(node, holder.article()) else {
            return Vec::new();
        };
        match Entry::of(map) {
            Entry::Block => self.block(node, map, context, holder).into_iter().collect(),
            Entry::Import => self.import_tasks(map, context, holder),
            Entry::Role => self.import_role(map, context, holder),
            Entry::Meta => self.meta(map).into_iter().collect(),
            Entry::Call => {
                self.task(node, map, context, holder).map(|task| Item::Task(Arc::new(task))).into_iter().collect()
            }
        }
    }

    fn block(&mut self, node: &Node, map: &Map, context: &Context, holder: Holder) -> Option<Item> {
        let span = head(node);
        if holder == Holder::Handler {
            self.diagnostics.push(
                Diagnostic::error(span, "a block cannot be a handler")
                    .help("give each task its own name, and let them `listen` to a common one"),
            );
            return None;
        }
        self.known_keys(map, Holder::Block);
        if map.get("block").is_none() {
            self.diagnostics.error(span, "`rescue` and `always` belong to a `block`, and there is none");
        }
        let name = self.text_or_template(map, "name").map_or_else(String::new, |name| name.value.to_string());
        let mut inner = context.enter(self, map);
        push_vars(&mut inner.block_vars, self.vars(map, "vars"));
        self.nested(Some(span), |loader| {
            let mut part = |key| map.get(key).map_or_else(Vec::new, |node| loader.items(node, &inner, holder));
            let (body, rescue, always) = (part("block"), part("rescue"), part("always"));
            Item::Block(Arc::new(Block { name, span, body, rescue, always }))
        })
    }

    fn meta(&mut self, map: &Map) -> Option<Item> {
        let (key, node) = map.iter().find(|(key, _)| short_name(&key.name) == "meta")?;
        for (other, _) in map.iter().filter(|(other, _)| !matches!(&*other.name, "name" | "tags") && *other != *key) {
            let message = format!("`{}` has no effect on `meta`", other.name);
            self.diagnostics.push(Diagnostic::error(other.span, message).help("remove it"));
        }
        match node.as_str() {
            Some("flush_handlers") => Some(Item::FlushHandlers(node.span)),
            Some("noop") => None,
            _ => {
                let message = format!("`meta` cannot be {}", node.describe());
                let help = "there are `flush_handlers` and `noop`; to stop a host, use `fail` or a condition";
                self.diagnostics.push(Diagnostic::error(node.span, message).help(help));
                None
            }
        }
    }

    /// One call of a module, with everything around it.
    pub(super) fn task(&mut self, node: &Node, map: &Map, context: &Context, holder: Holder) -> Option<Task> {
        let call = self.module_call(node, map, holder);
        let mut inner = context.enter(self, map);
        push_vars(&mut inner.block_vars, self.vars(map, "vars"));
        let given_name = self.text_or_template(map, "name");
        let loops = self.loop_of(map);
        let register = self.text(map, "register").filter(|name| self.variable_name(&name.value, name.span));
        let needs = self.needs(map);
        let listen = self.words(map, "listen").into_iter().map(|word| word.value).collect();
        let changed_when = self.conditions(map, "changed_when");
        let failed_when = self.conditions(map, "failed_when");
        let until = self.conditions(map, "until");
        let (retries, delay) = self.repeats(map, until.is_empty());
        let detach = self.seconds(map, "async");
        let poll = self.seconds(map, "poll").unwrap_or(DEFAULT_POLL);
        let ModuleCall { module, args, effects } = call?;
        let name =
            given_name.map_or_else(|| unnamed(module.name, module.free_form, &args), |name| name.value.to_string());
        let path = self.unique_path(&inner, &name);
        Some(Task {
            name,
            path,
            span: task_span(node),
            module,
            args,
            effects,
            vars: inner.vars(),
            r#become: inner.becomes(),
            when: inner.when,
            loops,
            register,
            notify: inner.notify,
            listen,
            tags: inner.tags,
            environment: inner.environment,
            delegate_to: inner.delegate_to,
            on: inner.on,
            once_per: inner.once_per,
            run_once: inner.run_once.unwrap_or(false),
            needs,
            changed_when,
            failed_when,
            until,
            retries,
            delay,
            ignore_errors: inner.ignore_errors.unwrap_or(false),
            ignore_unreachable: inner.ignore_unreachable.unwrap_or(false),
            any_errors_fatal: inner.any_errors_fatal.unwrap_or(false),
            no_log: inner.no_log.unwrap_or(false),
            check_mode: inner.check_mode,
            diff: inner.diff,
            timeout: inner.timeout,
            detach,
            poll,
            throttle: inner.throttle,
            role: inner.role,
            folder: inner.folder,
            playbook_folder: match inner.playbook_folder {
                // That of an embedded playbook has no files of the user's.
                Place::Embedded { .. } => Place::disk(&self.options.start),
                folder => folder,
            },
        })
    }

    fn seconds(&mut self, map: &Map, key: &str) -> Option<Duration> {
        self.typed::<Seconds>(map, key).map(|seconds| seconds.0)
    }

    /// `retries` alone repeats until the task succeeds.
    fn repeats(&mut self, map: &Map, no_until: bool) -> (u32, Duration) {
        let default = if no_until { 0 } else { DEFAULT_RETRIES };
        let retries = self.typed(map, "retries").unwrap_or(default);
        (retries, self.seconds(map, "delay").unwrap_or(DEFAULT_DELAY))
    }

    fn loop_of(&mut self, map: &Map) -> Option<Loop> {
        let items = match (map.entry("loop"), map.entry("with_items")) {
            (Some(_), Some((key, _))) => {
                self.diagnostics.error(key.span, "`loop` and `with_items` cannot both be given");
                return None;
            }
            (Some((_, items)), None) => items.clone(),
            (None, Some((key, items))) => {
                let old = Diagnostic::warning(key.span, "`with_items` is the old way to write a loop");
                self.diagnostics.push(old.help("write `loop`; it uses the list without flattening"));
                flattened(items)
            }
            (None, None) => {
                if let Some((key, _)) = map.entry("loop_control") {
                    self.diagnostics.error(key.span, "`loop_control` without a `loop`");
                }
                return None;
            }
        };
        if !items.is_template() && items.as_seq().is_none() {
            let message = format!("`loop` takes a list, found {}", items.describe());
            self.diagnostics.error(items.span, message);
        }
        self.check_templates(&items);
        let control = map.get("loop_control").and_then(|node| self.mapping(node, "`loop_control`"));
        Some(self.loop_control(items, control.unwrap_or(&Map::default())))
    }

    fn loop_control(&mut self, items: Node, control: &Map) -> Loop {
        const KNOWN: &[&str] = &["loop_var", "index_var", "label", "pause"];
        for (key, _) in control.iter().filter(|(key, _)| !KNOWN.contains(&&*key.name)) {
            self.diagnostics.push(unknown_key(key, "`loop_control`", KNOWN));
        }
        let mut name = |key| {
            let name = self.text(control, key)?;
            self.variable_name(&name.value, name.span).then_some(name.value)
        };
        let var = name("loop_var").unwrap_or_else(|| "item".into());
        let index_var = name("index_var");
        let pause = self.seconds(control, "pause").unwrap_or_default();
        control.get("label").into_iter().for_each(|label| self.check_templates(label));
        Loop { items, var, index_var, label: control.get("label").cloned(), pause }
    }

    fn needs(&mut self, map: &Map) -> Vec<Need> {
        let Some(node) = map.get("needs").filter(|node| !node.is_null()) else {
            return Vec::new();
        };
        let entries = node.as_seq().unwrap_or(std::slice::from_ref(node));
        entries.iter().filter_map(|entry| self.need(entry)).collect()
    }

    fn need(&mut self, node: &Node) -> Option<Need> {
        const KNOWN: &[&str] = &["task", "hosts"];
        let Kind::Map(map) = &node.kind else {
            let node = self.settle(node, "needs")?;
            return Some(Need { task: self.text_of(&node, "needs")?, hosts: None });
        };
        for (key, _) in map.iter().filter(|(key, _)| !KNOWN.contains(&&*key.name)) {
            self.diagnostics.push(unknown_key(key, "`needs`", KNOWN));
        }
        if map.get("task").is_none() {
            self.diagnostics.error(head(node), "`needs` has no `task`");
        }
        let hosts = self.text(map, "hosts").map(|hosts| hosts.map(|pattern| pattern.to_string()));
        Some(Need { task: self.text(map, "task")?, hosts })
    }

    /// The role and the name; a number where that would repeat inside the play.
    fn unique_path(&mut self, context: &Context, name: &str) -> Arc<str> {
        let base = match &context.role {
            Some(role) => format!("{}/{name}", role.name),
            None => name.to_owned(),
        };
        loop {
            let count = self.play.paths.entry(base.clone()).or_default();
            *count += 1;
            let path = if *count == 1 { base.clone() } else { format!("{base}#{count}") };
            // A task may itself be named "x#2".
            if *count == 1 || !self.play.paths.contains_key(&path) {
                self.play.paths.entry(path.clone()).or_insert(1);
                return path.into();
            }
        }
    }
}

pub(super) fn push_vars(list: &mut Vec<Arc<crate::source::Vars>>, vars: crate::source::Vars) {
    if !vars.is_empty() {
        list.push(Arc::new(vars));
    }
}

pub(super) fn unknown_key(key: &Key, place: &str, known: &[&str]) -> Diagnostic {
    let help = crate::source::did_you_mean(&key.name, known.iter().copied())
        .unwrap_or_else(|| format!("known keys: {}", known.join(", ")));
    Diagnostic::error(key.span, format!("unknown key `{}` in {place}", key.name)).help(help)
}

/// `with_items` flattens lists inside its list, once.
fn flattened(items: &Node) -> Node {
    let Kind::Seq(list) = &items.kind else {
        return items.clone();
    };
    let flat = list.iter().flat_map(|item| item.as_seq().unwrap_or(std::slice::from_ref(item))).cloned();
    Node { kind: Kind::Seq(flat.collect()), ..items.clone() }
}

/// A name for a task that has none: its module, and the argument that tells it from others.
fn unnamed(module: &str, free_form: Option<&str>, args: &Node) -> String {
    const TELLING: &[&str] = &["dest", "path", "name", "src", "url", "msg", "var"];
    const LONGEST: usize = 60;
    let Some(map) = args.as_map() else {
        return module.to_owned();
    };
    let telling = free_form.into_iter().chain(TELLING.iter().copied()).filter_map(|key| map.get(key));
    let any = map.iter().map(|(_, value)| value);
    let Some(text) = telling.chain(any).find_map(Node::as_str).and_then(|text| text.lines().next()) else {
        return module.to_owned();
    };
    let cut: String = text.trim().chars().take(LONGEST).collect();
    if cut.is_empty() { module.to_owned() } else { format!("{module} {cut}") }
}

/// The first entry of the task, normally its name.
fn task_span(node: &Node) -> Span {
    let Some((key, value)) = node.as_map().and_then(|map| map.iter().next()) else {
        return node.span;
    };
    let scalar = !matches!(value.kind, Kind::Map(_) | Kind::Seq(_)) && value.span.file == key.span.file;
    if scalar { Span { end: value.span.end.max(key.span.end), ..key.span } } else { key.span }
}
