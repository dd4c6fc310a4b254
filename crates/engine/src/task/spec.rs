//! What a module is: typed arguments, a statement of effects, and the way to an action.

use std::path::PathBuf;

use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::DeserializeOwned;

use super::{Action, Traits};
use crate::{
    inventory::{Host, Inventory},
    model::{Effects, Span},
    source::{Diagnostic, Diagnostics, Key, Kind, Map, Node, Sources, Vars, check, from_node},
    template::{Engine, Scope},
};

/// A field of a module's result, beyond what every result has.
#[derive(Clone, Copy, Debug)]
pub struct ResultField {
    pub name: &'static str,
    pub doc: &'static str,
}

/// A key of the argument `cluster`, and what stands for it on a member.
#[derive(Clone, Copy, Debug)]
pub struct ClusterKey {
    pub name: &'static str,
    /// A template. Never all of the cluster at once: it has sections with templates and secrets that a module does not need, and that
    /// need not be there for it.
    pub own: &'static str,
    /// Whether it has a usual value, so that a task which names another cluster need not say it.
    pub has_default: bool,
}

/// The argument that says which cluster a task is about.
const CLUSTER: &str = "cluster";
/// Its key that makes it another cluster than the target's own.
const CLUSTER_NAME: &str = "name";

/// What a module may use while it turns arguments into an action: files of the operator, templates.
pub struct BuildContext<'a> {
    pub engine: &'a Engine,
    pub scope: &'a Scope,
    /// Where a relative `src` is looked for, first match wins: the role's folder, then the playbook's.
    pub file_paths: &'a [PathBuf],
    pub template_paths: &'a [PathBuf],
    pub check_mode: bool,
    /// Opens files of the operator that are encrypted, and has what was in them masked.
    pub sources: &'a Sources,
    /// The place of the task, for errors.
    pub span: Span,
}

/// Why arguments that were well typed still cannot become an action.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct ModuleError {
    pub message: String,
    pub help: Option<String>,
}

impl ModuleError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// The template engine found fault with an expression or a file.
impl From<Diagnostic> for ModuleError {
    fn from(diagnostic: Diagnostic) -> Self {
        Self { message: diagnostic.message, help: diagnostic.help }
    }
}

/// A module: the type itself is its arguments.
///
/// The doc comments of the type and its fields are its documentation (`etcdrun doc NAME`).
pub trait Module: DeserializeOwned + JsonSchema + Sized + Send + 'static {
    const NAME: &'static str;
    /// The argument that a bare string stands for, as in `command: ls -l`.
    const FREE_FORM: Option<&'static str> = None;
    /// Arguments that are bare expressions, as `when` is, so that their names are checked at load too.
    const EXPRESSIONS: &'static [&'static str] = &[];
    /// What it has to know of its argument `cluster`. On a member a task need not say it.
    const CLUSTER: &'static [ClusterKey] = &[];
    /// What the engine has to know of it besides.
    const TRAITS: Traits = Traits::NONE;
    /// A playbook snippet that shows its use.
    const EXAMPLE: &'static str;
    const RESULT: &'static [ResultField] = &[];

    /// Rules between arguments, such as "one of `src` and `content`". Also called at load, when an
    /// argument may still be a placeholder: judge by presence there, by value only in `action`.
    fn validate(&self) -> Result<(), ModuleError> {
        Ok(())
    }

    fn effects(&self) -> Effects;

    /// What the inventory lacks for a host on which a playbook calls it: found when the playbook is loaded, before a task fails half-way.
    fn missing(_: &Inventory, _: &Host, _: &Vars) -> Option<Diagnostic> {
        None
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError>;
}

/// An action and what it may do, or everything that is wrong with the arguments.
pub type Built = Result<(Effects, Action), Vec<Diagnostic>>;

/// A module as the engine sees it.
pub struct ModuleSpec {
    pub name: &'static str,
    pub free_form: Option<&'static str>,
    pub expressions: &'static [&'static str],
    pub traits: Traits,
    cluster: &'static [ClusterKey],
    pub example: &'static str,
    pub result: &'static [ResultField],
    schema: fn() -> Schema,
    check: fn(&Node, &mut Diagnostics) -> Option<Effects>,
    missing: fn(&Inventory, &Host, &Vars) -> Option<Diagnostic>,
    build: fn(&Node, &BuildContext<'_>) -> Built,
}

impl std::fmt::Debug for ModuleSpec {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("ModuleSpec").field(&self.name).finish()
    }
}

impl ModuleSpec {
    pub const fn of<M: Module>() -> Self {
        Self {
            name: M::NAME,
            free_form: M::FREE_FORM,
            expressions: M::EXPRESSIONS,
            traits: M::TRAITS,
            cluster: M::CLUSTER,
            example: M::EXAMPLE,
            result: M::RESULT,
            schema: || SchemaGenerator::default().into_root_schema_for::<M>(),
            check: check_args::<M>,
            missing: M::missing,
            build: build_action::<M>,
        }
    }

    pub fn schema(&self) -> Schema {
        (self.schema)()
    }

    /// The arguments as a mapping: a bare string goes to the free-form argument.
    pub fn normalize(&self, args: Node) -> Result<Node, Diagnostic> {
        match (&args.kind, self.free_form) {
            (Kind::Map(_), _) => Ok(args),
            (Kind::Null, _) => Ok(Node::new(args.span, Kind::Map(Map::default()))),
            (Kind::String(_), Some(name)) => {
                let key = Key { name: name.into(), span: args.span };
                Ok(Node::new(args.span, Kind::Map(Map::new(vec![(key, args)]))))
            }
            _ => Err(Diagnostic::error(
                args.span,
                format!("`{}` takes a mapping of arguments, found {}", self.name, args.describe()),
            )),
        }
    }

    /// How a task says which cluster it is about, if the module has to know that.
    pub fn cluster_in_words(&self) -> Option<String> {
        let keys = self.cluster.iter().filter(|key| !key.has_default);
        let keys: Vec<String> = keys.map(|key| format!("{}: ...", key.name)).collect();
        (!keys.is_empty()).then(|| format!("`cluster: {{{}}}`", keys.join(", ")))
    }

    /// The arguments with the cluster that the target is a member of, as far as they do not say another.
    pub fn with_own_cluster(&self, mut args: Node, diagnostics: &mut Diagnostics) -> Node {
        if self.cluster.is_empty() {
            return args;
        }
        let Kind::Map(map) = &mut args.kind else { return args };
        if let Some(problem) = self.no_cluster(map) {
            diagnostics.push(problem);
            map.remove(CLUSTER);
        }
        add_own_cluster(map, self.cluster, args.span);
        args
    }

    /// What is wrong with a cluster that is only named.
    fn no_cluster(&self, args: &Map) -> Option<Diagnostic> {
        let words = self.cluster_in_words()?;
        let given = args.get(CLUSTER)?;
        let may_be_one = matches!(given.kind, Kind::Map(_) | Kind::Null) || given.is_template() || given.is_sealed();
        (!may_be_one).then(|| {
            let message = format!("`cluster` takes a mapping, found {}", given.describe());
            let help = format!("on a member of the cluster leave it out, elsewhere write {words}");
            Diagnostic::error(given.span, message).help(help)
        })
    }

    /// Checks arguments at load, templates unrendered; says what the task would be able to do.
    pub fn check(&self, args: &Node, diagnostics: &mut Diagnostics) -> Option<Effects> {
        (self.check)(args, diagnostics)
    }

    /// What the inventory lacks for a host on which it is called.
    pub fn missing(&self, inventory: &Inventory, host: &Host, extra_vars: &Vars) -> Option<Diagnostic> {
        (self.missing)(inventory, host, extra_vars)
    }

    /// Builds the action from rendered arguments.
    pub fn build(&self, args: &Node, context: &BuildContext<'_>) -> Built {
        match args.as_map().and_then(|args| self.no_cluster(args)) {
            Some(problem) => Err(vec![problem]),
            None => (self.build)(args, context),
        }
    }
}

/// Adds what arguments do not say of the cluster: what the target's own has there. Once they say a name, that may be another
/// cluster, and two do not mix.
fn add_own_cluster(args: &mut Map, keys: &[ClusterKey], span: Span) {
    if args.get(CLUSTER).is_none_or(Node::is_null) {
        args.remove(CLUSTER);
        args.push(Key { name: CLUSTER.into(), span }, Node::new(span, Kind::Map(Map::default())));
    }
    let Some(Node { kind: Kind::Map(cluster), .. }) = args.get_mut(CLUSTER) else { return };
    if cluster.get(CLUSTER_NAME).is_some() {
        return;
    }
    for key in keys {
        if cluster.get(key.name).is_none() {
            cluster.push(Key { name: key.name.into(), span }, Node::string(span, key.own));
        }
    }
}

fn check_args<M: Module>(args: &Node, diagnostics: &mut Diagnostics) -> Option<Effects> {
    let module: M = check(args, diagnostics)?;
    match module.validate() {
        Ok(()) => Some(module.effects()),
        Err(error) => {
            diagnostics.push(at(error, args.span));
            None
        }
    }
}

fn build_action<M: Module>(args: &Node, context: &BuildContext<'_>) -> Built {
    let module: M = from_node(args)?;
    module.validate().map_err(|error| vec![at(error, args.span)])?;
    let effects = module.effects();
    let action = module.action(context).map_err(|error| vec![at(error, context.span)])?;
    Ok((effects, action))
}

fn at(error: ModuleError, span: Span) -> Diagnostic {
    Diagnostic::error(span, error.message).maybe_help(error.help)
}
