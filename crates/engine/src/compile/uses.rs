//! Which names a task's templates use, and where. Each distinct text is read once.

use std::{collections::HashMap, rc::Rc};

use crate::{
    model::{FileId, Span},
    playbook::{Expression, Task},
    source::{Kind, Node, Sources},
    task::OperatorFile,
    template::{NameUse, guards_in_expression, names_in_expression, names_in_file, names_in_template, place_in},
};

/// A name where it is used.
#[derive(Clone)]
pub(super) struct Found {
    pub name: NameUse,
    pub span: Span,
    /// Bound by the task itself: its own result.
    pub local: bool,
    /// Read before the loop's item is there: by `loop` itself.
    pub outside_loop: bool,
    /// Conditions that come before it, and so decide whether it is read at all.
    pub after_conditions: usize,
}

impl Found {
    fn new(name: NameUse, span: Span) -> Self {
        Self { name, span, local: false, outside_loop: false, after_conditions: 0 }
    }

    fn behind(self, guards: &[Vec<String>], conditions: usize) -> Self {
        Self { name: self.name.guarded_by(guards), after_conditions: conditions, ..self }
    }
}

#[derive(Default)]
pub(super) struct Uses {
    templates: HashMap<Rc<str>, Rc<Vec<NameUse>>>,
    expressions: HashMap<Rc<str>, Rc<Vec<NameUse>>>,
}

impl Uses {
    /// All names of the task, with what its `when` guards taken into account.
    pub(super) fn of_task(&mut self, task: &Task, sources: &mut Sources) -> Vec<Found> {
        let mut guards: Vec<Vec<String>> = Vec::new();
        let mut found = Vec::new();
        for (position, when) in task.when.iter().enumerate() {
            let mut names = Vec::new();
            self.expression(&when.value, when.span, &mut names);
            found.extend(names.into_iter().map(|name| name.behind(&guards, position + 1)));
            guards.extend(guards_in_expression(when).unwrap_or_default());
        }
        let mut body = Vec::new();
        self.nodes(&task.args, &mut body);
        body.extend(self.of_template_file(task, sources));
        self.bare_arguments(task, &mut body);
        task.environment.iter().chain(&task.delegate_to).for_each(|node| self.nodes(node, &mut body));
        if let Some(user) = &task.r#become.user {
            self.nodes(&Node::string(task.span, user.clone()), &mut body);
        }
        found.extend(body.into_iter().map(|name| name.behind(&guards, task.when.len())));
        self.items(task, &mut found);
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
    fn items(&mut self, task: &Task, found: &mut Vec<Found>) {
        let Some(items) = &task.loops else { return };
        items.label.iter().for_each(|label| self.nodes(label, found));
        let mut outside = Vec::new();
        self.nodes(&items.items, &mut outside);
        found.extend(outside.into_iter().map(|name| Found { outside_loop: true, ..name }));
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
            found.local |= name == "result" || own == Some(name);
            found.after_conditions = task.when.len();
        }
        found.extend(judging);
    }

    /// Some arguments are expressions without braces: `assert: that:`, `debug: var:`.
    fn bare_arguments(&mut self, task: &Task, found: &mut Vec<Found>) {
        let Some(args) = task.args.as_map() else { return };
        for node in task.module.expressions.iter().filter_map(|name| args.get(name)) {
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
        if task.module.traits.file != OperatorFile::Template {
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
            Found::new(use_of.name, span)
        });
        found.collect()
    }
}

fn at(name: &NameUse, text: &str, span: Span) -> Found {
    Found::new(name.clone(), place_in(text, span, name.offset, name.len))
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
