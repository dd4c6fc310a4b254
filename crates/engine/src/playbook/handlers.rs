//! Handlers, and the names by which tasks refer to each other.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    context::Context,
    keywords::Holder,
    loader::Loader,
    rollout::TurnsOf,
    secrets::{self, secrets_in_environment},
    types::{Item, Play, Task},
};
use crate::source::{Diagnostic, Node, did_you_mean};

impl Loader<'_> {
    /// Adds handlers to the play. Of two with one name the later is notified.
    pub(super) fn handlers(&mut self, node: &Node, context: &Context) {
        // What a role is notified of is not passed on to its handlers.
        let context = Context { notify: Vec::new(), ..context.clone() };
        for item in self.items(node, &context, Holder::Handler) {
            match item {
                Item::Task(task) => self.handler(task),
                Item::FlushHandlers(span) => self.diagnostics.error(span, "a handler cannot flush handlers"),
                Item::Block(block) => self.diagnostics.error(block.span, "a block cannot be a handler"),
            }
        }
    }

    fn handler(&mut self, handler: Arc<Task>) {
        // A role used twice brings its handlers twice; the later use counts.
        self.play.handlers.retain(|known| known.span != handler.span || known.name != handler.name);
        if let Some(first) = self.play.handlers.iter().find(|known| known.name == handler.name) {
            let twice = Diagnostic::warning(handler.span, format!("a second handler named `{}`", handler.name));
            self.diagnostics.push(
                twice.related(first.span, "the first one, which is never notified by name").help("rename one of them"),
            );
        }
        self.play.handlers.push(handler);
    }

    /// Every `notify` must reach a handler, every `needs` a task.
    pub(super) fn check_references(&mut self, play: &Play) {
        let tasks = play.tasks(TurnsOf::default());
        let answering: HashSet<&str> = play.handlers.iter().flat_map(|handler| handler.answers_to()).collect();
        let mut named: HashMap<&str, usize> = HashMap::new();
        for task in &tasks {
            *named.entry(&task.name).or_default() += 1;
            named.entry(&task.path).or_default();
        }
        for task in tasks.iter().copied().chain(&play.handlers) {
            let lookup = |name: &str| secrets::visible(play, task, name);
            secrets_in_environment(task, &lookup).into_iter().for_each(|problem| self.diagnostics.push(problem));
            for name in task.notify.iter().filter(|name| !answers(&answering, play, &name.value)) {
                let near = did_you_mean(&name.value, answering.iter().copied());
                let help = near.unwrap_or_else(|| "add it under `handlers`".to_owned());
                self.diagnostics
                    .push(Diagnostic::error(name.span, format!("no handler is called `{}`", name.value)).help(help));
            }
            for need in task.needs.iter().filter(|need| !named.contains_key(&*need.task.value)) {
                let near = did_you_mean(&need.task.value, named.keys().copied());
                let message = format!("no task of this play is called `{}`", need.task.value);
                self.diagnostics.push(Diagnostic::error(need.task.span, message).maybe_help(near));
            }
        }
    }
}

fn answers(answering: &HashSet<&str>, play: &Play, name: &str) -> bool {
    answering.contains(name) || play.handlers_for(name).next().is_some()
}
