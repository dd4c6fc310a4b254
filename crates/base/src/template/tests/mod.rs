//! Tests of the whole stage: what a playbook's author sees.

mod filters;
mod hostile;
mod names;
mod rendering;

use std::sync::Arc;

use super::{Engine, Layer, Scope};
use crate::{
    model::{Span, Value},
    source::{Diagnostic, Diagnostics, Node, Sources, Vars, parse},
};

/// YAML text with the means to render it and to show what is wrong with it.
struct Bench {
    engine: Engine,
    sources: Sources,
}

impl Bench {
    fn new() -> Self {
        Self { engine: Engine::new(), sources: Sources::default() }
    }

    fn node(&mut self, yaml: &str) -> Node {
        let file = self.sources.add("t.yaml", yaml);
        let mut problems = Diagnostics::default();
        let node = parse(&self.sources, file, &mut problems);
        let messages: Vec<_> = problems.iter().map(|problem| &problem.message).collect();
        assert!(messages.is_empty(), "{messages:?}");
        node.expect("a document")
    }

    fn vars(&mut self, yaml: &str) -> Layer {
        let node = self.node(yaml);
        let map = node.as_map().expect("a mapping");
        Layer::Nodes(Arc::new(map.iter().map(|(key, node)| (key.name.clone(), node.clone())).collect::<Vars>()))
    }

    fn scope(&mut self, yaml: &str) -> Scope {
        Scope::new(vec![self.vars(yaml)])
    }

    fn span(&mut self, text: &str) -> Span {
        let file = self.sources.add("t.yaml", text);
        Span::new(file, 0, text.len())
    }

    fn render(&mut self, yaml: &str, scope: &Scope) -> Result<Value, Diagnostic> {
        let node = self.node(yaml);
        self.engine.render_node(&node, scope).map(|node| node.to_value())
    }

    fn eval(&mut self, expression: &str, scope: &Scope) -> Result<Value, Diagnostic> {
        let span = self.span(expression);
        self.engine.eval(expression, span, scope)
    }

    fn holds(&mut self, expression: &str, scope: &Scope) -> Result<bool, Diagnostic> {
        let span = self.span(expression);
        self.engine.eval_bool(expression, span, scope)
    }

    /// A diagnostic as text: place, marked source, message, help.
    fn show(&self, problem: &Diagnostic) -> String {
        let mark = |span: Span| {
            let text = self.sources.text(span.file);
            let marked = text.get(span.start as usize..span.end as usize).unwrap_or("?");
            format!("{} `{}`", self.sources.describe(span), marked.replace('\n', "\\n"))
        };
        let mut shown = format!("error: {}\n", problem.message);
        shown += &problem.span.map_or(String::new(), |span| format!("  at {}\n", mark(span)));
        shown += &problem.label.as_ref().map_or(String::new(), |label| format!("  {label}\n"));
        for (span, note) in &problem.related {
            shown += &format!("  {note}: {}\n", mark(*span));
        }
        shown + &problem.help.as_ref().map_or(String::new(), |help| format!("  help: {help}\n"))
    }
}
