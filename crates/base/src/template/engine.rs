//! The engine: compiles each text once and renders it in any scope, from any thread.

use std::{
    collections::HashMap,
    ops::Range,
    sync::{Arc, PoisonError, RwLock},
};

use minijinja::{Error, Expression, Template, Value as Rendered, value::ValueKind};

use super::{
    Scope,
    analysis::{Analysis, Reference, SyntaxError, expression_range},
    convert::{self, is_omit},
    environment::INLINE,
    error::{self, Failure, Place, Problem},
    file::Files,
    rewrite::Rewritten,
    session,
    view::is_view,
};
use crate::{
    model::{Span, Value},
    source::{Diagnostic, Kind, Map, Node},
};

/// Whether a node is a string to render. A tag takes a string out of it: `!unsafe` says that its
/// braces are meant, and other tags belong to whoever reads the value.
pub(super) fn is_rendered(node: &Node) -> bool {
    node.tag.is_none() && node.is_template()
}

enum Code {
    /// One expression, whose value keeps its type.
    Expression(Expression<'static, 'static>),
    Text(Template<'static, 'static>),
}

struct Compiled {
    code: Code,
    rewritten: Rewritten,
    /// Where the rewritten text begins in the original.
    base: usize,
}

type Cache = RwLock<HashMap<Arc<str>, Arc<Compiled>>>;

#[derive(Default)]
struct Shared {
    texts: Cache,
    expressions: Cache,
    files: Files,
}

/// Renders templates. Clones share what was compiled.
#[derive(Clone, Default)]
pub struct Engine {
    shared: Arc<Shared>,
}

impl Engine {
    pub fn new() -> Self {
        Self::default()
    }

    /// Renders every string in a tree. A scalar that is one `{{ expression }}` takes the type of the
    /// expression; an entry whose value is `omit` is left out.
    pub fn render_node(&self, node: &Node, scope: &Scope) -> Result<Node, Diagnostic> {
        session::enter(|| {
            let omitted = || Node { span: node.span, tag: None, kind: Kind::Null };
            self.render_tree(node, scope).map(|rendered| rendered.unwrap_or_else(omitted))
        })
    }

    /// Renders text to text.
    pub fn render_str(&self, text: &str, span: Span, scope: &Scope) -> Result<String, Diagnostic> {
        if !text.contains("{{") && !text.contains("{%") {
            return Ok(text.to_owned());
        }
        session::enter(|| {
            let place = Place { text, span };
            let compiled = self.text(place)?;
            let value = self.run(&compiled, place, scope)?;
            if value.is_undefined() {
                return Err(self.undefined(&compiled, place, scope));
            }
            super::environment::to_text(&value)
                .map_err(|error| error::explain(&error, place, compiled.base, &compiled.rewritten, self, scope))
        })
    }

    /// The value of a bare expression.
    pub fn eval(&self, expression: &str, span: Span, scope: &Scope) -> Result<Value, Diagnostic> {
        session::enter(|| {
            let place = Place { text: expression, span };
            let compiled = self.expression(place)?;
            let value = self.run_defined(&compiled, place, scope)?;
            convert::to_value(&value)
                .map_err(|error| error::explain(&error, place, compiled.base, &compiled.rewritten, self, scope))
        })
    }

    /// A condition, as in `when:`. Only true and false will do: a string `"false"` would hold.
    pub fn eval_bool(&self, expression: &str, span: Span, scope: &Scope) -> Result<bool, Diagnostic> {
        session::enter(|| {
            let place = Place { text: expression, span };
            let compiled = self.expression(place)?;
            let value = self.run_defined(&compiled, place, scope)?;
            match value.kind() {
                ValueKind::Bool => Ok(value.is_true()),
                _ => Err(not_a_condition(&value, span)),
            }
        })
    }

    /// A template file. What it includes comes from the loader, by constant names.
    pub fn render_file(
        &self,
        name: &str,
        text: &str,
        loader: &dyn Fn(&str) -> Option<String>,
        scope: &Scope,
    ) -> Result<String, Diagnostic> {
        session::enter(|| self.shared.files.render(self, name, text, loader, scope))
    }

    fn render_tree(&self, node: &Node, scope: &Scope) -> Result<Option<Node>, Diagnostic> {
        let kind = match &node.kind {
            Kind::String(_) if is_rendered(node) => {
                let value = self.render_scalar(node, scope)?;
                return self.to_node(&value, node, scope);
            }
            Kind::Seq(items) => {
                let items = items.iter().filter_map(|item| self.render_tree(item, scope).transpose());
                Kind::Seq(items.collect::<Result<_, _>>()?)
            }
            Kind::Map(map) => {
                let mut rendered = Map::default();
                for (key, value) in map.iter() {
                    if let Some(value) = self.render_tree(value, scope)? {
                        rendered.push(key.clone(), value);
                    }
                }
                Kind::Map(rendered)
            }
            scalar => scalar.clone(),
        };
        Ok(Some(Node { span: node.span, tag: node.tag.clone(), kind }))
    }

    fn to_node(&self, value: &Rendered, node: &Node, scope: &Scope) -> Result<Option<Node>, Diagnostic> {
        if is_omit(value) {
            return Ok(None);
        }
        let value = convert::to_value(value).map_err(|error| self.explain_at(node.span, error, scope))?;
        Ok(Some(Node::from_value(node.span, value)))
    }

    /// The value of a variable that is a template. What an expression built is computed to the last
    /// item while the variable still counts as being rendered, so that it cannot contain itself.
    pub(super) fn render_variable(&self, node: &Node, scope: &Scope) -> Result<Rendered, Diagnostic> {
        let value = self.render_scalar(node, scope)?;
        match value.kind() {
            ValueKind::Seq | ValueKind::Map | ValueKind::Iterable if !is_view(&value) => {
                let value = convert::to_value(&value).map_err(|error| self.explain_at(node.span, error, scope))?;
                Ok(convert::from_value(&value))
            }
            _ => Ok(value),
        }
    }

    fn explain_at(&self, span: Span, error: Error, scope: &Scope) -> Diagnostic {
        let problem = self.explain_plain(error, scope);
        Diagnostic { span: problem.span.or(Some(span)), ..problem }
    }

    /// The value of a string that is a template, of whatever type.
    pub(super) fn render_scalar(&self, node: &Node, scope: &Scope) -> Result<Rendered, Diagnostic> {
        let place = Place { text: node.as_str().unwrap_or_default(), span: node.span };
        let compiled = self.text(place)?;
        self.run_defined(&compiled, place, scope)
    }

    fn run_defined(&self, compiled: &Compiled, place: Place<'_>, scope: &Scope) -> Result<Rendered, Diagnostic> {
        let value = self.run(compiled, place, scope)?;
        if value.is_undefined() {
            return Err(self.undefined(compiled, place, scope));
        }
        Ok(value)
    }

    fn run(&self, compiled: &Compiled, place: Place<'_>, scope: &Scope) -> Result<Rendered, Diagnostic> {
        let context = scope.to_object(self);
        session::run(|| {
            let result = match &compiled.code {
                Code::Expression(expression) => expression.eval(context),
                Code::Text(template) => template.render(context).map(Rendered::from),
            };
            result.map_err(|error| error::explain(&error, place, compiled.base, &compiled.rewritten, self, scope))
        })
    }

    /// The expression came to nothing without any step of it failing.
    fn undefined(&self, compiled: &Compiled, place: Place<'_>, scope: &Scope) -> Diagnostic {
        let text = place.text[compiled.base..].trim_end_matches(['}', '-', '+']).trim();
        if text.contains(" if ") && !text.contains(" else ") {
            let message = "this `if` is false and has no `else`";
            return Diagnostic::error(place.span, message).help("add an alternative: `... else omit`");
        }
        let problem = Problem::undefined(text, self, scope);
        let error = Error::new(minijinja::ErrorKind::UndefinedError, problem.message);
        error::explain(&error, place, compiled.base, &compiled.rewritten, self, scope)
    }

    /// An error that has no text to point into.
    pub(super) fn explain_plain(&self, error: Error, scope: &Scope) -> Diagnostic {
        if let Some(problem) = Failure::inside(&error) {
            return problem.clone();
        }
        let problem = Problem::of(&error, self, scope);
        Diagnostic::error(None, problem.message).maybe_help(problem.help)
    }

    fn text(&self, place: Place<'_>) -> Result<Arc<Compiled>, Diagnostic> {
        cached(&self.shared.texts, place.text, compile_text).map_err(|error| place.syntax(&error))
    }

    fn expression(&self, place: Place<'_>) -> Result<Arc<Compiled>, Diagnostic> {
        let compile = |text: &str| compile_expression(text, expression_range(text));
        cached(&self.shared.expressions, place.text, compile).map_err(|error| place.syntax(&error))
    }
}

fn cached(
    cache: &Cache,
    text: &str,
    compile: impl FnOnce(&str) -> Result<Compiled, SyntaxError>,
) -> Result<Arc<Compiled>, SyntaxError> {
    if let Some(compiled) = cache.read().unwrap_or_else(PoisonError::into_inner).get(text) {
        return Ok(compiled.clone());
    }
    let compiled = Arc::new(compile(text)?);
    cache.write().unwrap_or_else(PoisonError::into_inner).insert(text.into(), compiled.clone());
    Ok(compiled)
}

fn compile_text(text: &str) -> Result<Compiled, SyntaxError> {
    let analysis = Analysis::of_template(text)?;
    if let Some(Reference { offset, .. }) = analysis.references.first() {
        return Err(SyntaxError::new(*offset, "only template files can include, import or extend others"));
    }
    if let Some(range) = analysis.native {
        return compile_expression(text, range);
    }
    let rewritten = Rewritten::new(text, analysis.edits);
    // The inline environment's loader takes a template's name for its text.
    let template = INLINE.get_template(&rewritten.text).map_err(|error| super::analysis::syntax_error(&error))?;
    Ok(Compiled { code: Code::Text(template), rewritten, base: 0 })
}

fn compile_expression(text: &str, range: Range<usize>) -> Result<Compiled, SyntaxError> {
    let base = range.start;
    let shift = |mut error: SyntaxError| {
        error.offset += base;
        error
    };
    let bare = &text[range];
    let analysis = Analysis::of_bare_expression(bare).map_err(shift)?;
    let rewritten = Rewritten::new(bare, analysis.edits);
    let expression = INLINE
        .compile_expression_owned(rewritten.text.clone())
        .map_err(|error| shift(super::analysis::syntax_error(&error)))?;
    Ok(Compiled { code: Code::Expression(expression), rewritten, base })
}

fn not_a_condition(value: &Rendered, span: Span) -> Diagnostic {
    let (what, help) = match value.kind() {
        ValueKind::String => {
            (format!("the string {:?}", value.to_string()), "compare it with something, or use `| bool`")
        }
        ValueKind::Number => (format!("the number {value}"), "compare it with something, such as `> 0`"),
        ValueKind::None => ("none".to_owned(), "use `is not none`, or `is defined`"),
        ValueKind::Seq | ValueKind::Iterable => ("a list".to_owned(), "use `| length > 0`"),
        ValueKind::Map => ("a mapping".to_owned(), "use `| length > 0`"),
        kind => (format!("a {kind}"), "a condition must be true or false"),
    };
    Diagnostic::error(span, format!("this condition is {what}, not true or false")).help(help)
}
