//! The loader's state, and the reading of files and single keywords.

use std::{
    collections::{HashMap, HashSet},
    path::PathBuf,
    sync::Arc,
};

use serde::de::DeserializeOwned;

use super::{
    keywords::{self, Holder},
    place::Place,
    types::{Expression, RoleContext, Task},
};
use crate::{
    model::{Span, Spanned},
    source::{Diagnostic, Diagnostics, Kind, Map, Node, Sources, Vars, did_you_mean, from_node, parse},
    task::Library,
    template::{Engine, Layer, Scope},
};

/// Blocks, imports and roles inside each other. Far beyond what a person can follow.
const MAX_NESTING: usize = 40;
/// Files that import each other twice double at every level; this ends it.
const MAX_IMPORTS: usize = 50_000;

/// What the loader needs beyond the playbook itself.
#[derive(Clone)]
pub struct LoadOptions {
    /// Where `./roles` is.
    pub start: PathBuf,
    /// Further folders of roles.
    pub roles_path: Vec<PathBuf>,
    /// Variables of the command line (`-e`): the only ones known while loading.
    pub extra_vars: Arc<Vars>,
    /// The modules that its tasks can call, and the roles that need no file.
    pub library: Library,
    /// Roles come from the binary alone, whatever folders of roles there are.
    pub embedded_roles_only: bool,
}

impl LoadOptions {
    pub fn new(library: Library) -> Self {
        Self {
            start: PathBuf::new(),
            roles_path: Vec::new(),
            extra_vars: Arc::default(),
            library,
            embedded_roles_only: false,
        }
    }
}

pub(super) struct Loader<'a> {
    pub(super) options: &'a LoadOptions,
    pub(super) sources: &'a mut Sources,
    pub(super) diagnostics: &'a mut Diagnostics,
    files: HashMap<Place, Option<Arc<Node>>>,
    /// The files and roles being read, outermost first.
    frames: Vec<Frame>,
    imports: usize,
    depth: usize,
    engine: Engine,
    /// Variables that are known while loading.
    scope: Scope,
    /// Templates that were looked at; a file can be imported many times.
    checked: HashSet<Span>,
    /// Roles that were compared with those of the binary.
    pub(super) compared: HashSet<Place>,
    /// Roles come from the binary alone, in the playbook that is being read.
    pub(super) embedded_roles_only: bool,
    pub(super) play: PlayState,
}

/// What is gathered while one play is read.
#[derive(Default)]
pub(super) struct PlayState {
    pub(super) handlers: Vec<Arc<Task>>,
    pub(super) paths: HashMap<String, usize>,
    pub(super) roles: Vec<Arc<RoleContext>>,
    /// Roles that already stand in the play, with their parameters and conditions.
    pub(super) roles_used: HashSet<String>,
    /// Names the play itself gives a value to.
    pub(super) known_vars: HashSet<Arc<str>>,
}

/// A file or role that is being read, and the line that asked for it.
#[derive(Clone)]
struct Frame {
    place: Place,
    name: String,
    span: Option<Span>,
}

impl<'a> Loader<'a> {
    pub(super) fn new(options: &'a LoadOptions, sources: &'a mut Sources, diagnostics: &'a mut Diagnostics) -> Self {
        Self {
            options,
            sources,
            diagnostics,
            files: HashMap::new(),
            frames: Vec::new(),
            imports: 0,
            depth: 0,
            engine: Engine::new(),
            scope: Scope::new(vec![Layer::Nodes(options.extra_vars.clone())]),
            checked: HashSet::new(),
            compared: HashSet::new(),
            embedded_roles_only: options.embedded_roles_only,
            play: PlayState::default(),
        }
    }

    pub(super) fn first_look(&mut self, span: Span) -> bool {
        self.checked.insert(span)
    }

    /// Reads and parses a file once; `span` is the line that asked for it.
    pub(super) fn file(&mut self, place: &Place, span: Option<Span>) -> Option<Arc<Node>> {
        if let Some(known) = self.files.get(place) {
            return known.clone();
        }
        let node = self.read(place, span).map(Arc::new);
        self.files.insert(place.clone(), node.clone());
        node
    }

    /// Puts a document in the place of a file.
    pub(super) fn put(&mut self, place: Place, node: Option<Node>) {
        self.files.insert(place, node.map(Arc::new));
    }

    fn read(&mut self, place: &Place, span: Option<Span>) -> Option<Node> {
        let file = match place {
            Place::Disk(path) => self.sources.read(path),
            Place::Embedded { .. } => match place.contents().map(|bytes| String::from_utf8(bytes.into_owned())) {
                Some(Ok(text)) => Ok(self.sources.add(place.label(), text)),
                _ => Err(Diagnostic::error(None, format!("{place}: no such text"))),
            },
        };
        match file {
            Ok(file) => parse(self.sources, file, self.diagnostics),
            Err(problem) => {
                self.diagnostics.push(Diagnostic { span, ..problem });
                None
            }
        }
    }

    /// Runs `read` with `place` on the stack of files and roles, unless that closes a loop.
    pub(super) fn inside<T>(
        &mut self,
        place: &Place,
        name: &str,
        span: Option<Span>,
        read: impl FnOnce(&mut Self) -> T,
    ) -> Option<T> {
        self.imports += 1;
        if self.imports > MAX_IMPORTS {
            let message = format!("more than {MAX_IMPORTS} imports in one playbook");
            self.diagnostics.push(Diagnostic::error(span, message).help("do files import each other twice?"));
            return None;
        }
        let frame = Frame { place: place.clone(), name: name.to_owned(), span };
        if let Some(first) = self.frames.iter().position(|frame| frame.place == *place) {
            self.report_loop(first, frame);
            return None;
        }
        self.frames.push(frame);
        let result = self.nested(span, read);
        self.frames.pop();
        result
    }

    /// Runs `read` one level deeper, unless that is too deep.
    pub(super) fn nested<T>(&mut self, span: Option<Span>, read: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.depth >= MAX_NESTING {
            let message = format!("blocks, imports and roles nested more than {MAX_NESTING} deep");
            self.diagnostics.error(span, message);
            return None;
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        Some(result)
    }

    fn report_loop(&mut self, first: usize, last: Frame) {
        let mut chain = self.frames[first..].to_vec();
        chain.push(last.clone());
        let names: Vec<&str> = chain.iter().map(|frame| frame.name.as_str()).collect();
        let message = format!("this import never ends: {}", names.join(" → "));
        let mut problem = Diagnostic::error(last.span, message);
        for pair in chain.windows(2) {
            if let (Some(span), true) = (pair[1].span, pair[1].span != last.span) {
                problem = problem.related(span, format!("{} imports {} here", pair[0].name, pair[1].name));
            }
        }
        self.diagnostics.push(problem);
    }

    /// Reports keys that are no keywords of this place.
    pub(super) fn known_keys(&mut self, map: &Map, on: Holder) {
        for (key, _) in map.iter().filter(|(key, _)| !keywords::is_keyword(&key.name, on)) {
            self.diagnostics.push(keywords::unknown_key(key, on));
        }
    }

    /// A mapping, or a complaint.
    pub(super) fn mapping<'n>(&mut self, node: &'n Node, what: &str) -> Option<&'n Map> {
        if node.as_map().is_none() {
            let message = format!("{what} is a mapping, found {}", node.describe());
            self.diagnostics.error(node.span, message);
        }
        node.as_map()
    }

    /// A list, where nothing at all is an empty one.
    pub(super) fn list<'n>(&mut self, node: &'n Node, what: &str) -> &'n [Node] {
        match &node.kind {
            Kind::Seq(items) => items,
            Kind::Null => &[],
            _ => {
                let message = format!("expected {what}, found {}", node.describe());
                self.diagnostics.error(node.span, message);
                &[]
            }
        }
    }

    /// A keyword whose value must be known while loading.
    pub(super) fn typed<T: DeserializeOwned>(&mut self, map: &Map, key: &str) -> Option<T> {
        let node = self.settled(map, key)?;
        match from_node(&node) {
            Ok(value) => Some(value),
            Err(problems) => {
                for problem in problems {
                    let message = format!("`{key}`: {}", problem.message);
                    self.diagnostics.push(Diagnostic { message, ..problem });
                }
                None
            }
        }
    }

    /// A keyword's value with templates rendered, as far as `-e` variables go.
    pub(super) fn settled(&mut self, map: &Map, key: &str) -> Option<Node> {
        let node = map.get(key).filter(|node| !node.is_null())?;
        self.settle(node, key)
    }

    pub(super) fn settle(&mut self, node: &Node, key: &str) -> Option<Node> {
        if !node.is_template() {
            return Some(node.clone());
        }
        match self.engine.render_node(node, &self.scope) {
            Ok(rendered) => Some(Node { span: node.span, ..rendered }),
            Err(problem) => {
                let message = format!("`{key}` must be known when the playbook is loaded: {}", problem.message);
                let help = "the shape of a run is static: write the value out, or pass the variable with -e";
                self.diagnostics.push(Diagnostic::error(node.span, message).help(help));
                None
            }
        }
    }

    /// A text that must be known while loading.
    pub(super) fn text(&mut self, map: &Map, key: &str) -> Option<Spanned<Arc<str>>> {
        let node = self.settled(map, key)?;
        self.text_of(&node, key)
    }

    /// A text that may be a template.
    pub(super) fn text_or_template(&mut self, map: &Map, key: &str) -> Option<Spanned<Arc<str>>> {
        let node = map.get(key).filter(|node| !node.is_null())?;
        self.check_templates(node);
        self.text_of(node, key)
    }

    pub(super) fn text_of(&mut self, node: &Node, key: &str) -> Option<Spanned<Arc<str>>> {
        let text: Arc<str> = match &node.kind {
            Kind::String(text) => text.clone(),
            Kind::Int(number) => number.to_string().into(),
            _ => {
                let message = format!("`{key}`: expected a string, found {}", node.describe());
                self.diagnostics.error(node.span, message);
                return None;
            }
        };
        Some(Spanned::new(text, node.span))
    }

    /// One word or a list of words.
    pub(super) fn words(&mut self, map: &Map, key: &str) -> Vec<Spanned<Arc<str>>> {
        let Some(node) = map.get(key).filter(|node| !node.is_null()) else {
            return Vec::new();
        };
        let items = node.as_seq().unwrap_or(std::slice::from_ref(node));
        let settled: Vec<Node> = items.iter().filter_map(|item| self.settle(item, key)).collect();
        settled.iter().filter_map(|item| self.text_of(item, key)).collect()
    }

    /// Tags, also written as one comma-separated word.
    pub(super) fn tags(&mut self, map: &Map) -> Vec<Arc<str>> {
        let words = self.words(map, "tags");
        let tags = words.iter().flat_map(|word| word.value.split(',')).map(str::trim).filter(|tag| !tag.is_empty());
        tags.map(Arc::from).collect()
    }

    pub(super) fn one_of<T: Copy>(&mut self, map: &Map, key: &str, known: &[(&str, T)]) -> Option<Spanned<T>> {
        let word = self.text(map, key)?;
        if let Some((_, value)) = known.iter().find(|(name, _)| *name == &*word.value) {
            return Some(Spanned::new(*value, word.span));
        }
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let near = did_you_mean(&word.value, names.iter().copied());
        let message = format!("`{key}`: `{}` is not one of {}", word.value, names.join(", "));
        self.diagnostics.push(Diagnostic::error(word.span, message).maybe_help(near));
        None
    }

    /// Conditions: an expression, a boolean, or a list of them.
    pub(super) fn conditions(&mut self, map: &Map, key: &str) -> Vec<Expression> {
        let Some(node) = map.get(key).filter(|node| !node.is_null()) else {
            return Vec::new();
        };
        let items = node.as_seq().unwrap_or(std::slice::from_ref(node));
        items.iter().filter_map(|item| self.condition(item, key)).collect()
    }

    fn condition(&mut self, node: &Node, key: &str) -> Option<Expression> {
        let text = match &node.kind {
            Kind::Bool(value) => return Some(Spanned::new(value.to_string().into(), node.span)),
            Kind::String(text) if !text.trim().is_empty() => text,
            _ => {
                let message = format!("`{key}`: expected a condition, found {}", node.describe());
                self.diagnostics.error(node.span, message);
                return None;
            }
        };
        if !node.is_template() {
            self.check_expression(text, node.span);
            return Some(Spanned::new(text.clone(), node.span));
        }
        let inner = text.trim().strip_prefix("{{").and_then(|rest| rest.strip_suffix("}}"));
        let inner = inner.filter(|inner| !inner.contains("{{") && !inner.contains("{%")).map(str::trim);
        let message = format!("`{key}` is already an expression, and needs no braces");
        match inner {
            Some(inner) => {
                self.diagnostics.push(Diagnostic::warning(node.span, message).help(format!("write `{key}: {inner}`")));
                self.check_expression(inner, node.span);
                Some(Spanned::new(inner.into(), node.span))
            }
            None => {
                self.diagnostics.push(Diagnostic::error(node.span, message).help("use the names without {{ }}"));
                None
            }
        }
    }

    /// Environment mappings; each may as a whole be a template.
    pub(super) fn environment(&mut self, map: &Map) -> Vec<Node> {
        let Some(node) = map.get("environment").filter(|node| !node.is_null()) else {
            return Vec::new();
        };
        self.check_templates(node);
        let items = node.as_seq().unwrap_or(std::slice::from_ref(node));
        items.iter().filter(|item| item.is_template() || self.scalars(item, "environment")).cloned().collect()
    }

    /// Whether the node is a mapping to single values; complains if it is not.
    fn scalars(&mut self, node: &Node, key: &str) -> bool {
        let Some(map) = self.mapping(node, &format!("`{key}`")) else {
            return false;
        };
        let nested: Vec<&Node> =
            map.iter().map(|(_, value)| value).filter(|v| matches!(v.kind, Kind::Seq(_) | Kind::Map(_))).collect();
        for value in &nested {
            let message = format!("`{key}`: expected a single value, found {}", value.describe());
            self.diagnostics.error(value.span, message);
        }
        nested.is_empty()
    }

    /// A mapping of variables.
    pub(super) fn vars(&mut self, map: &Map, key: &str) -> Vars {
        match map.get(key) {
            Some(node) => self.vars_of(node, &format!("`{key}`")),
            None => Vars::new(),
        }
    }

    pub(super) fn vars_of(&mut self, node: &Node, what: &str) -> Vars {
        if node.is_null() {
            return Vars::new();
        }
        let mut vars = Vars::new();
        for (key, value) in self.mapping(node, what).into_iter().flat_map(Map::iter) {
            if self.variable_name(&key.name, key.span) {
                self.check_templates(value);
                vars.insert(key.name.clone(), value.clone());
            }
        }
        vars
    }

    /// Whether templates can refer to this name; complains if they cannot.
    pub(super) fn variable_name(&mut self, name: &str, span: Span) -> bool {
        let starts_well = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
        let good = starts_well && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !good {
            self.diagnostics.push(
                Diagnostic::error(span, format!("`{name}` cannot be the name of a variable"))
                    .help("a name has letters, digits and underscores, and no digit in front"),
            );
        }
        good
    }
}

/// Where a mapping begins: its first key, so that a message marks one line and not all of it.
pub(super) fn head(node: &Node) -> Span {
    node.as_map().and_then(|map| map.iter().next()).map_or(node.span, |(key, _)| key.span)
}
