//! Template files: a text with what it includes, compiled once for all hosts.

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, PoisonError, RwLock},
};

use minijinja::{Environment, Error};

use super::{
    Engine, NameUse, Scope,
    analysis::{Analysis, SyntaxError},
    environment,
    error::{Failure, Problem, causes},
    rewrite::Rewritten,
    session,
};
use crate::source::Diagnostic;

type Loader<'l> = &'l dyn Fn(&str) -> Option<String>;

/// More than this is a loop that generates names.
const MOST_FILES: usize = 200;

/// A name that a template file, or one it includes, uses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileName {
    /// The file that uses it, by the name it is included by.
    pub template: String,
    /// Counted from one.
    pub line: usize,
    pub name: NameUse,
}

/// The names that a template file and all it includes use.
pub fn names_in_file(name: &str, text: &str, loader: Loader<'_>) -> Result<Vec<FileName>, Diagnostic> {
    let parts = read_parts(name, text, loader)?;
    let names = parts.iter().flat_map(|(template, part)| {
        part.analysis.names.iter().map(|name| FileName {
            template: template.clone(),
            line: line_of(&part.text, name.offset),
            name: name.clone(),
        })
    });
    Ok(names.collect())
}

fn line_of(text: &str, offset: usize) -> usize {
    text.bytes().take(offset).filter(|b| *b == b'\n').count() + 1
}

/// One file of a template.
struct Part {
    text: String,
    analysis: Analysis,
    rewritten: Rewritten,
}

type Parts = BTreeMap<String, Part>;

/// A template and all it includes, ready to render.
struct Compiled {
    parts: Parts,
    /// Files that were asked for and, by `ignore missing`, may be missing.
    missing: Vec<String>,
    environment: Environment<'static>,
}

#[derive(Default)]
pub(super) struct Files {
    /// By name, then by text.
    cache: RwLock<HashMap<String, HashMap<String, Arc<Compiled>>>>,
}

impl Files {
    pub fn render(
        &self,
        engine: &Engine,
        name: &str,
        text: &str,
        loader: Loader<'_>,
        scope: &Scope,
    ) -> Result<String, Diagnostic> {
        let compiled = self.compiled(name, text, loader)?;
        session::run(|| {
            let template = compiled.environment.get_template(name);
            let rendered = template.and_then(|template| template.render(scope.to_object(engine)));
            rendered.map_err(|error| compiled.explain(&error, engine, scope))
        })
    }

    fn compiled(&self, name: &str, text: &str, loader: Loader<'_>) -> Result<Arc<Compiled>, Diagnostic> {
        let known = self.known(name, text);
        if let Some(known) = known.filter(|known| known.is_current(name, loader)) {
            return Ok(known);
        }
        let compiled = Arc::new(Compiled::new(read_parts(name, text, loader)?)?);
        let mut cache = self.cache.write().unwrap_or_else(PoisonError::into_inner);
        cache.entry(name.to_owned()).or_default().insert(text.to_owned(), compiled.clone());
        Ok(compiled)
    }

    fn known(&self, name: &str, text: &str) -> Option<Arc<Compiled>> {
        self.cache.read().unwrap_or_else(PoisonError::into_inner).get(name)?.get(text).cloned()
    }
}

impl Compiled {
    fn new(parts: Parts) -> Result<Self, Diagnostic> {
        let mut environment = environment::for_files();
        for (name, part) in &parts {
            environment
                .add_template_owned(name.clone(), part.rewritten.text.clone())
                .map_err(|error| invalid(name, &part.text, &super::analysis::syntax_error(&error)))?;
        }
        let references = parts.values().flat_map(|part| &part.analysis.references);
        let asked = references.filter_map(|reference| reference.name.clone());
        let missing = asked.filter(|name| !parts.contains_key(name)).collect();
        Ok(Self { parts, missing, environment })
    }

    /// Whether the included files are still what they were.
    fn is_current(&self, main: &str, loader: Loader<'_>) -> bool {
        let mut included = self.parts.iter().filter(|(name, _)| *name != main);
        included.all(|(name, part)| loader(name).is_some_and(|text| text == part.text))
            && self.missing.iter().all(|name| loader(name).is_none())
    }

    fn explain(&self, error: &Error, engine: &Engine, scope: &Scope) -> Diagnostic {
        if let Some(problem) = Failure::inside(error) {
            return problem.clone();
        }
        let error = innermost(error);
        let problem = Problem::of(error, engine, scope);
        let place = error.name().and_then(|name| self.parts.get_key_value(name)).map(|(name, part)| {
            let offset = error.range().map_or(0, |range| part.rewritten.original_offset(range.start));
            position(name, &part.text, offset)
        });
        let message = match place {
            Some(place) => format!("{place}: {}", problem.message),
            None => problem.message,
        };
        Diagnostic::error(None, message).maybe_help(problem.help)
    }
}

/// The error in the included file, not the failure to include it.
fn innermost(error: &Error) -> &Error {
    let errors = causes(error);
    errors
        .filter_map(|error| error.downcast_ref::<Error>())
        .filter(|error| error.name().is_some())
        .last()
        .unwrap_or(error)
}

fn position(name: &str, text: &str, offset: usize) -> String {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let column = before.rsplit('\n').next().unwrap_or("").chars().count() + 1;
    format!("{name}:{}:{column}", line_of(text, offset))
}

fn invalid(name: &str, text: &str, error: &SyntaxError) -> Diagnostic {
    let place = position(name, text, error.offset);
    Diagnostic::error(None, format!("{place}: this template is not valid: {}", error.message))
}

/// Reads a template and, by their constant names, all files it refers to.
fn read_parts(name: &str, text: &str, loader: Loader<'_>) -> Result<Parts, Diagnostic> {
    let mut parts = Parts::new();
    let mut waiting = vec![(name.to_owned(), text.to_owned(), Vec::new())];
    while let Some((name, text, locals)) = waiting.pop() {
        let analysis = Analysis::of_included(&text, &locals).map_err(|error| invalid(&name, &text, &error))?;
        for reference in &analysis.references {
            let place = || position(&name, &text, reference.offset);
            let Some(included) = &reference.name else {
                let message = format!("{}: the name of an included template must be a constant", place());
                return Err(Diagnostic::error(None, message));
            };
            if parts.contains_key(included) || *included == name {
                continue;
            }
            match loader(included) {
                Some(text) => waiting.push((included.clone(), text, reference.locals.clone())),
                None if reference.ignore_missing => {}
                None => return Err(Diagnostic::error(None, format!("{}: no template `{included}`", place()))),
            }
        }
        if parts.len() >= MOST_FILES {
            return Err(Diagnostic::error(None, format!("{name}: more than {MOST_FILES} files in one template")));
        }
        let rewritten = Rewritten::new(&text, analysis.edits.clone());
        parts.insert(name, Part { text, analysis, rewritten });
    }
    Ok(parts)
}
