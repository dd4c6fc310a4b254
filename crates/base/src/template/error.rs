//! minijinja errors to diagnostics: which name, where, and what to do about it.

use std::error::Error as _;

use minijinja::{Error, ErrorKind, Value, value::ValueKind};

use super::{
    Engine, Scope,
    analysis::{NameUse, SyntaxError, names_in_expression},
    callables::{CallKind, near},
    rewrite::Rewritten,
};
use crate::{
    model::Span,
    source::{Diagnostic, did_you_mean, nearest},
};

/// Carries a diagnostic through minijinja: a variable that failed inside the template that uses it.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}", .0.message)]
pub(super) struct Failure(pub Diagnostic);

impl Failure {
    pub fn into_error(problem: Diagnostic) -> Error {
        Error::new(ErrorKind::InvalidOperation, problem.message.clone()).with_source(Self(problem))
    }

    /// A value that fails when it is used.
    pub fn into_value(problem: Diagnostic) -> Value {
        Value::from(Self::into_error(problem))
    }

    pub fn inside(error: &Error) -> Option<&Diagnostic> {
        causes(error).find_map(|cause| cause.downcast_ref::<Self>()).map(|failure| &failure.0)
    }
}

/// What led to an error, outermost first.
pub(super) fn causes(error: &Error) -> impl Iterator<Item = &(dyn std::error::Error + 'static)> {
    let mut next = error.source();
    std::iter::from_fn(move || {
        let cause = next?;
        next = cause.source();
        Some(cause)
    })
}

/// A text and where it was written.
#[derive(Clone, Copy)]
pub(super) struct Place<'t> {
    pub text: &'t str,
    pub span: Span,
}

impl Place<'_> {
    /// The part of the scalar, where the text stands in the file as it is: plain, or quoted
    /// without escapes. Otherwise all of it.
    fn part(self, offset: usize, len: usize) -> Span {
        let written = (self.span.end - self.span.start) as usize;
        let is_one_line = !self.text.contains('\n');
        match written.checked_sub(self.text.len()) {
            Some(0) if is_one_line => self.span.part(offset, len),
            Some(2) if is_one_line => self.span.part(offset + 1, len),
            _ => self.span,
        }
    }

    fn diagnostic(self, offset: usize, len: usize, message: String) -> Diagnostic {
        let diagnostic = Diagnostic::error(self.part(offset, len), message);
        if !self.text.contains('\n') {
            return diagnostic;
        }
        let before = self.text.get(..offset.min(self.text.len())).unwrap_or(self.text);
        let number = before.matches('\n').count();
        let line = self.text.lines().nth(number).unwrap_or("").trim();
        diagnostic.label(format!("in line {} of this text: {line}", number + 1))
    }

    pub fn syntax(self, error: &SyntaxError) -> Diagnostic {
        let message = format!("this template is not valid: {}", error.message);
        self.diagnostic(error.offset, 1, message).maybe_help(syntax_help(self.text))
    }
}

fn syntax_help(text: &str) -> Option<String> {
    let quoted = text.matches('\'').count() % 2 == 1 || text.matches('"').count() % 2 == 1;
    quoted.then(|| "a quotation mark is missing, or one too many".to_owned())
}

/// Where a part of a scalar's text is in its file, as far as that can be told.
pub fn place_in(text: &str, span: Span, offset: usize, len: usize) -> Span {
    Place { text, span }.part(offset, len)
}

/// Says what went wrong, in terms of the text as it was written.
pub(super) fn explain(
    error: &Error,
    place: Place<'_>,
    base: usize,
    rewritten: &Rewritten,
    engine: &Engine,
    scope: &Scope,
) -> Diagnostic {
    if let Some(problem) = Failure::inside(error) {
        return used_from(problem, place.span);
    }
    let range = error.range().unwrap_or(0..rewritten.text.len());
    let start = base + rewritten.original_offset(range.start);
    let end = base + rewritten.original_offset(range.end);
    let problem = Problem::of(error, engine, scope);
    let (offset, len) = problem.locate(place.text, start..end);
    let diagnostic = place.diagnostic(offset, len, problem.message);
    diagnostic.maybe_help(problem.help)
}

/// A problem in a variable is reported where the variable is written, and says who used it.
pub(super) fn used_from(problem: &Diagnostic, span: Span) -> Diagnostic {
    const SHOWN: usize = 4;
    let known = problem.span == Some(span) || problem.related.iter().any(|(other, _)| *other == span);
    if known || problem.related.len() >= SHOWN {
        return problem.clone();
    }
    problem.clone().related(span, "used here")
}

/// What is wrong, without its place.
pub(super) struct Problem {
    pub message: String,
    pub help: Option<String>,
    /// The expression that was undefined.
    undefined: Option<String>,
}

impl Problem {
    pub fn of(error: &Error, engine: &Engine, scope: &Scope) -> Self {
        if let Some(path) = undefined_path(error) {
            return Self::undefined(&path, engine, scope);
        }
        let detail = error.detail().unwrap_or_default();
        let (message, help) = match error.kind() {
            ErrorKind::UndefinedError => ("a value is undefined".to_owned(), None),
            ErrorKind::UnknownFilter => unknown(CallKind::Filter, detail),
            ErrorKind::UnknownTest => unknown(CallKind::Test, detail),
            ErrorKind::UnknownFunction => unknown(CallKind::Function, detail),
            ErrorKind::SyntaxError => (format!("this template is not valid: {detail}"), None),
            ErrorKind::OutOfFuel => {
                ("this template never seems to end".to_owned(), Some("check for nested loops".to_owned()))
            }
            kind if detail.is_empty() => (kind.to_string(), None),
            _ => (innermost_detail(error), None),
        };
        Self { message, help, undefined: None }
    }

    pub fn undefined(path: &str, engine: &Engine, scope: &Scope) -> Self {
        Self {
            message: format!("`{path}` is undefined"),
            help: Some(undefined_help(path, engine, scope)),
            undefined: Some(path.to_owned()),
        }
    }

    /// Narrows the place to the undefined name: inside what failed, or before it, as with a filter.
    fn locate(&self, text: &str, range: std::ops::Range<usize>) -> (usize, usize) {
        let whole = (range.start, range.len());
        let Some(path) = &self.undefined else { return whole };
        let places =
            text.match_indices(path.as_str()).map(|(at, _)| at).filter(|at| is_whole_word(text, *at, path.len()));
        let nearest = places.min_by_key(|at| (*at >= range.end, at.abs_diff(range.start)));
        nearest.map_or(whole, |at| (at, path.len()))
    }
}

fn is_whole_word(text: &str, start: usize, len: usize) -> bool {
    let in_word = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    !text[..start].ends_with(in_word) && !text[start + len..].starts_with(|c: char| in_word(c) && c != '.')
}

/// The cause says more than "cannot convert value to list".
fn innermost_detail(error: &Error) -> String {
    let details = causes(error).filter_map(|error| error.downcast_ref::<Error>()).filter_map(Error::detail);
    let own = error.detail().unwrap_or_default();
    details.last().map_or_else(|| own.to_owned(), |cause| format!("{own}: {cause}"))
}

/// minijinja says "... `a.b` is undefined ..." in the detail of whatever error it led to.
fn undefined_path(error: &Error) -> Option<String> {
    let detail = error.detail()?;
    let (before, _) = detail.split_once("` is undefined")?;
    let (_, path) = before.rsplit_once('`')?;
    (!path.contains("(...)")).then(|| path.to_owned())
}

fn unknown(kind: CallKind, detail: &str) -> (String, Option<String>) {
    // "filter foo is unknown", but for functions "foo is unknown".
    let name = detail.strip_suffix(" is unknown").unwrap_or(detail).rsplit(' ').next().unwrap_or(detail);
    (format!("unknown {kind} `{name}`"), near(kind, name))
}

fn undefined_help(path: &str, engine: &Engine, scope: &Scope) -> String {
    let name = names_in_expression(path).ok().and_then(|names| names.into_iter().next());
    let root = name.as_ref().map_or(path, NameUse::root);
    if let Some(value) = scope.lookup(engine, root) {
        return missing_key_help(root, value, name.as_ref().map_or(&[], |name| &name.path[1..]));
    }
    let names = scope.names();
    did_you_mean(root, names.iter().map(String::as_str))
        .unwrap_or_else(|| format!("define `{root}`, or add a default: `{path} | default(...)`"))
}

fn missing_key_help(root: &str, value: Value, path: &[String]) -> String {
    const SHOWN: usize = 8;
    let (mut seen, mut value) = (root.to_owned(), value);
    for step in path {
        let next = match step.parse::<usize>() {
            Ok(position) if value.kind() == ValueKind::Seq => value.get_item_by_index(position),
            _ => value.get_attr(step),
        };
        match next {
            Ok(next) if !next.is_undefined() => {
                value = next;
                seen += &format!(".{step}");
            }
            _ => break,
        }
    }
    let missing = path.get(seen.matches('.').count()).map_or("", String::as_str);
    if value.kind() != ValueKind::Map {
        return format!("`{seen}` is a {}", value.kind());
    }
    let keys: Vec<String> = value.try_iter().into_iter().flatten().map(|key| key.to_string()).collect();
    match nearest(missing, keys.iter().map(String::as_str)) {
        Some(near) => format!("did you mean `{seen}.{near}`?"),
        None if keys.is_empty() => format!("`{seen}` is empty"),
        None if keys.len() > SHOWN => format!("`{seen}` has {}, ...", keys[..SHOWN].join(", ")),
        None => format!("`{seen}` has {}", keys.join(", ")),
    }
}
