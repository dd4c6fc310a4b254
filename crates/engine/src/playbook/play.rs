//! Plays: the entries of a playbook file.

use std::sync::Arc;

use super::{
    context::Context,
    find::{find, is_embedded_name},
    keywords::{Holder, ORDERS},
    loader::{Loader, PlayState, head},
    place::Place,
    types::{BatchSize, HostOrder, Play, Section},
};
use crate::{
    model::{Span, Spanned},
    source::{Diagnostic, Kind, Map, Node, Vars, did_you_mean},
};

/// What an `import_playbook` passes on to the plays it stands for.
#[derive(Clone, Default)]
struct PassedOn {
    when: Vec<super::types::Expression>,
    tags: Vec<Arc<str>>,
    vars: Vars,
}

impl Loader<'_> {
    pub(super) fn playbook(&mut self, place: &Place) -> Vec<Play> {
        self.playbook_file(place, None, &PassedOn::default())
    }

    fn playbook_file(&mut self, place: &Place, span: Option<Span>, passed: &PassedOn) -> Vec<Play> {
        let plays = self.inside(place, &place.to_string(), span, |loader| {
            let node = loader.file(place, span)?;
            Some(loader.plays(&node, &place.parent(), passed))
        });
        plays.flatten().unwrap_or_default()
    }

    fn plays(&mut self, node: &Node, folder: &Place, passed: &PassedOn) -> Vec<Play> {
        let entries = match &node.kind {
            Kind::Seq(entries) => entries.as_slice(),
            Kind::Null => {
                self.diagnostics
                    .push(Diagnostic::error(node.span, "this playbook is empty").help("a playbook is a list of plays"));
                &[]
            }
            _ => {
                let message = format!("a playbook is a list of plays, found {}", node.describe());
                let help =
                    node.as_map().and_then(|map| map.get("hosts")).map(|_| "put `- ` in front of the play".to_owned());
                self.diagnostics.push(Diagnostic::error(head(node), message).maybe_help(help));
                &[]
            }
        };
        entries.iter().flat_map(|entry| self.entry(entry, folder, passed)).collect()
    }

    fn entry(&mut self, node: &Node, folder: &Place, passed: &PassedOn) -> Vec<Play> {
        let Some(map) = self.mapping(node, "a play") else {
            return Vec::new();
        };
        let import = map.iter().find(|(key, _)| super::task::short_name(&key.name) == "import_playbook");
        match import {
            Some((_, name)) => self.import_playbook(name, map, folder, passed),
            None => self.play(node, map, folder, passed).into_iter().collect(),
        }
    }

    fn import_playbook(&mut self, name: &Node, map: &Map, folder: &Place, passed: &PassedOn) -> Vec<Play> {
        let others = map.iter().filter(|(key, _)| super::task::short_name(&key.name) != "import_playbook").cloned();
        self.known_keys(&Map::new(others.collect()), Holder::ImportPlaybook);
        let mut inner = passed.clone();
        inner.when.extend(self.conditions(map, "when"));
        inner.tags.extend(self.tags(map));
        inner.vars.extend(self.vars(map, "vars"));
        let Some(settled) = self.settle(name, "import_playbook") else {
            return Vec::new();
        };
        let Some(file) = self.text_of(&settled, "import_playbook") else {
            return Vec::new();
        };
        if !is_embedded_name(&file.value) {
            return self.playbook_file(&folder.join(&*file.value), Some(file.span), &inner);
        }
        match find(&file.value, &self.options.start, self.options.library.embedded) {
            Ok(shipped) => {
                let around = std::mem::replace(&mut self.embedded_roles_only, true);
                let plays = self.playbook_file(&shipped.place, Some(file.span), &inner);
                self.embedded_roles_only = around;
                plays
            }
            Err(problem) => {
                self.diagnostics.push(Diagnostic { span: Some(file.span), ..problem });
                Vec::new()
            }
        }
    }

    fn play(&mut self, node: &Node, map: &Map, folder: &Place, passed: &PassedOn) -> Option<Play> {
        self.known_keys(map, Holder::Play);
        self.play = PlayState::default();
        let span = head(node);
        let hosts = self.hosts(node, map);
        let name = self.text(map, "name").map(|name| name.value.to_string());
        let vars_files = self.vars_files(map, folder);
        let mut vars = self.vars(map, "vars");
        vars.extend(passed.vars.clone());
        self.play.known_vars = vars.keys().chain(vars_files.keys()).cloned().collect();
        self.accepted_keywords(map);
        let context = self.play_context(map, folder, passed);
        let sections = self.sections(map, &context);
        if let Some(node) = map.get("handlers") {
            self.handlers(node, &context);
        }
        let serial = self.serial(map);
        let order = self.order(map);
        let max_fail_percentage = self.typed(map, "max_fail_percentage");
        let force_handlers = self.typed(map, "force_handlers").unwrap_or(false);
        let rollout = self.rollout(map, &context);
        if let Some(rollout) = &rollout {
            vars.extend(rollout.vars(&[]));
        }
        let state = std::mem::take(&mut self.play);
        let hosts = hosts?;
        let play = Play {
            name: name.unwrap_or_else(|| hosts.value.clone()),
            span,
            hosts,
            vars: Arc::new(vars),
            vars_files: Arc::new(vars_files),
            serial,
            order,
            max_fail_percentage,
            any_errors_fatal: context.any_errors_fatal.unwrap_or(false),
            force_handlers,
            rollout,
            sections,
            handlers: state.handlers,
            roles: state.roles,
        };
        self.check_references(&play);
        Some(play)
    }

    fn play_context(&mut self, map: &Map, folder: &Place, passed: &PassedOn) -> Context {
        let root = Context { when: passed.when.clone(), tags: passed.tags.clone(), ..Context::new(folder.clone()) };
        root.enter(self, map)
    }

    fn sections(&mut self, map: &Map, context: &Context) -> Vec<Section> {
        let mut sections = Vec::new();
        for name in ["pre_tasks", "roles", "tasks", "post_tasks"] {
            let Some(node) = map.get(name).filter(|node| !node.is_null()) else {
                continue;
            };
            let items = match name {
                "roles" => self.roles(node, context),
                _ => self.items(node, context, Holder::Task),
            };
            sections.push(Section { name, items });
        }
        sections
    }

    /// The host pattern; a list is one pattern with commas.
    fn hosts(&mut self, node: &Node, map: &Map) -> Option<Spanned<String>> {
        let Some((_, written)) = map.entry("hosts") else {
            // A mistyped `hosts` has been reported as an unknown key.
            if did_you_mean("hosts", map.iter().map(|(key, _)| &*key.name)).is_none() {
                let missing = Diagnostic::error(head(node), "this play has no `hosts`");
                self.diagnostics.push(missing.help("add a host pattern, such as `hosts: all`"));
            }
            return None;
        };
        let words = self.words(map, "hosts");
        let pattern = words.iter().map(|word| &*word.value).collect::<Vec<_>>().join(",");
        if pattern.trim().is_empty() {
            // A template or a wrong type has been reported already.
            if words.len() == written.as_seq().map_or(1, <[Node]>::len) || written.is_null() {
                let empty = Diagnostic::error(written.span, "the host pattern is empty");
                self.diagnostics.push(empty.help("name hosts, groups or clusters, or write `all`"));
            }
            return None;
        }
        Some(Spanned::new(pattern, written.span))
    }

    /// Keywords that are read for Ansible's sake.
    fn accepted_keywords(&mut self, map: &Map) {
        let _: Option<bool> = self.typed(map, "gather_facts");
        if let Some((key, _)) = map.entry("collections") {
            let ignored = Diagnostic::warning(key.span, "`collections` has no effect");
            self.diagnostics.push(ignored.help("all modules are built in; remove it"));
        }
        if let Some(strategy) =
            self.one_of(map, "strategy", &[("free", false), ("linear", true)]).filter(|linear| linear.value)
        {
            let warning =
                Diagnostic::warning(strategy.span, "hosts do not wait for each other, regardless of `strategy`");
            self.diagnostics
                .push(warning.help("use `needs`, or a play of its own, where one host must wait for another"));
        }
    }

    fn order(&mut self, map: &Map) -> HostOrder {
        let orders = [HostOrder::Inventory, HostOrder::Sorted, HostOrder::ReverseInventory, HostOrder::ReverseSorted];
        let known: Vec<(&str, HostOrder)> = ORDERS.iter().copied().zip(orders).collect();
        if map.get("order").and_then(Node::as_str) == Some("shuffle") {
            let span = map.get("order").map(|node| node.span);
            let random = Diagnostic::error(span, "`order: shuffle` is not supported");
            self.diagnostics.push(random.help("the same input gives the same run; use one of the other orders"));
            return HostOrder::Inventory;
        }
        self.one_of(map, "order", &known).map_or(HostOrder::Inventory, |order| order.value)
    }

    fn serial(&mut self, map: &Map) -> Vec<BatchSize> {
        let Some(node) = map.get("serial").filter(|node| !node.is_null()) else {
            return Vec::new();
        };
        let items = node.as_seq().unwrap_or(std::slice::from_ref(node));
        let settled: Vec<Node> = items.iter().filter_map(|item| self.settle(item, "serial")).collect();
        settled.iter().filter_map(|item| self.batch_size(item)).collect()
    }

    fn batch_size(&mut self, node: &Node) -> Option<BatchSize> {
        let text = match &node.kind {
            Kind::Int(count) => count.to_string(),
            Kind::String(text) => text.trim().to_owned(),
            _ => String::new(),
        };
        let percent = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        let percent = percent.filter(|percent| *percent > 0.0 && *percent <= 100.0).map(BatchSize::Percent);
        let count = text.parse::<usize>().ok().filter(|count| *count > 0).map(BatchSize::Count);
        if percent.or(count).is_none() {
            let message = format!("`serial`: expected a count or a percentage, found {}", node.describe());
            self.diagnostics.push(
                Diagnostic::error(node.span, message).help("write `1`, `\"30%\"`, or a list such as `[1, \"30%\"]`"),
            );
        }
        percent.or(count)
    }

    fn vars_files(&mut self, map: &Map, folder: &Place) -> Vars {
        let mut merged = Vars::new();
        for file in self.words(map, "vars_files") {
            if let Some(node) = self.file(&folder.join(&*file.value), Some(file.span)) {
                merged.extend(self.vars_of(&node, "a file of variables"));
            }
        }
        merged
    }
}
