//! Which names a task's templates use, and where. Each distinct text is read once.

use std::{collections::HashMap, rc::Rc};

use crate::{
    model::{FileId, Span},
    playbook::{Expression, Task},
    source::{Kind, Node, Sources},
    template::{NameUse, guards_in_expression, names_in_expression, names_in_file, names_in_template, place_in},
};

/// A name where it is used.
#[derive(Clone)]
pub(super) struct Found {
    pub name: NameUse,
    pub span: Span,
    /// Bound by the task itself: a loop's item, its own result.
    pub local: bool,
}

#[derive(Default)]
pub(super) struct Uses {
    templates: HashMap<Rc<str>, Rc<Vec<NameUse>>>,
    expressions: HashMap<Rc<str>, Rc<Vec<NameUse>>>,
}

impl Uses {
    /// All names of the task, with what its `when` guards taken into account.
    pub(super) fn of_task(&mut self, task: &Task, sources: &mut Sources) -> Vec<Found> {
        let guards: Vec<_> = task.when.iter().flat_map(|when| guards_in_expression(when).unwrap_or_default()).collect();
        let mut found = Vec::new();
        self.conditions(&task.when, &mut found);
        let mut body = Vec::new();
        self.nodes(&task.args, &mut body);
        body.extend(self.of_template_file(task, sources));
        if task.module.name == "assert" || task.module.name == "debug" {
            self.bare_arguments(task, &mut body);
        }
        task.environment.iter().chain(&task.delegate_to).for_each(|node| self.nodes(node, &mut body));
        found.extend(body.into_iter().map(|found| Found { name: found.name.guarded_by(&guards), ..found }));
        self.bind_items(task, &mut found);
        self.judgements(task, &mut found);
        found
    }

    /// The names inside a variable's value.
    pub(super) fn of_node(&mut self, node: &Node) -> Vec<Found> {
        let mut found = Vec::new();
        self.nodes(node, &mut found);
        found
    }

    /// `loop` itself is read outside the loop; everything else may use the item.
    fn bind_items(&mut self, task: &Task, found: &mut Vec<Found>) {
        let Some(items) = &task.loops else { return };
        items.label.iter().for_each(|label| self.nodes(label, found));
        let is_bound = |name: &str| name == &*items.var || items.index_var.as_deref() == Some(name);
        found.iter_mut().for_each(|f| f.local |= is_bound(f.name.root()));
        self.nodes(&items.items, found);
    }

    /// Expressions that judge the result see it under its name and as `result`.
    fn judgements(&mut self, task: &Task, found: &mut Vec<Found>) {
        let mut judging = Vec::new();
        for conditions in [&task.changed_when, &task.failed_when, &task.until] {
            self.conditions(conditions, &mut judging);
        }
        let own = task.register.as_ref().map(|name| &*name.value);
        for found in &mut judging {
            let name = found.name.root();
            let item = task.loops.as_ref().is_some_and(|items| name == &*items.var);
            found.local |= item || name == "result" || own == Some(name);
        }
        found.extend(judging);
    }

    /// `assert: that:` and `debug: var:` take expressions without braces.
    fn bare_arguments(&mut self, task: &Task, found: &mut Vec<Found>) {
        let Some(args) = task.args.as_map() else { return };
        for node in ["that", "var"].into_iter().filter_map(|name| args.get(name)) {
            let items = node.as_seq().unwrap_or(std::slice::from_ref(node));
            for (item, text) in items.iter().filter_map(|item| Some((item, item.as_str()?))) {
                self.expression(text, item.span, found);
            }
        }
    }

    fn conditions(&mut self, conditions: &[Expression], found: &mut Vec<Found>) {
        conditions.iter().for_each(|condition| self.expression(&condition.value, condition.span, found));
    }

    fn expression(&mut self, text: &str, span: Span, found: &mut Vec<Found>) {
        let read = |text: &str| names_in_expression(text).unwrap_or_default();
        let names = cached(&mut self.expressions, text, read);
        found.extend(names.iter().map(|name| at(name, text, span)));
    }

    fn nodes(&mut self, node: &Node, found: &mut Vec<Found>) {
        match &node.kind {
            Kind::String(text) if node.is_template() => {
                let read = |text: &str| names_in_template(text).unwrap_or_default();
                let names = cached(&mut self.templates, text, read);
                found.extend(names.iter().map(|name| at(name, text, node.span)));
            }
            Kind::Seq(items) => items.iter().for_each(|item| self.nodes(item, found)),
            Kind::Map(map) => map.iter().for_each(|(_, value)| self.nodes(value, found)),
            _ => {}
        }
    }

    /// A template file whose name is known is read and checked with the task that uses it.
    fn of_template_file(&mut self, task: &Task, sources: &mut Sources) -> Vec<Found> {
        if task.module.name != "template" {
            return Vec::new();
        }
        let source = task.args.as_map().and_then(|args| args.get("src")).filter(|src| !src.is_template());
        let Some(name) = source.and_then(Node::as_str) else { return Vec::new() };
        let load = |name: &str| task.template_text(name).map(|(_, text)| text);
        let Some((_, text)) = task.template_text(name) else { return Vec::new() };
        let mut files: HashMap<String, FileId> = HashMap::new();
        let mut place = |template: &str, offset: usize, len: usize| {
            let file = *files.entry(template.to_owned()).or_insert_with(|| {
                let (path, text) = task.template_text(template).unwrap_or_default();
                sources.add(path, text.as_str())
            });
            Span::new(file, offset, offset + len)
        };
        let names = names_in_file(name, &text, &load).unwrap_or_default();
        let found = names.into_iter().map(|use_of| {
            let span = place(&use_of.template, use_of.name.offset, use_of.name.len);
            Found { name: use_of.name, span, local: false }
        });
        found.collect()
    }
}

fn at(name: &NameUse, text: &str, span: Span) -> Found {
    Found { name: name.clone(), span: place_in(text, span, name.offset, name.len), local: false }
}

fn cached(
    cache: &mut HashMap<Rc<str>, Rc<Vec<NameUse>>>,
    text: &str,
    read: impl Fn(&str) -> Vec<NameUse>,
) -> Rc<Vec<NameUse>> {
    if let Some(names) = cache.get(text) {
        return names.clone();
    }
    let names = Rc::new(read(text));
    cache.insert(text.into(), names.clone());
    names
}
