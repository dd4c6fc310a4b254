//! What a playbook is, once loaded.

use std::{path::PathBuf, sync::Arc, time::Duration};

use super::{
    place::Place,
    rollout::{Rollout, TurnsOf},
};
use crate::{
    model::{Effects, Span, Spanned},
    source::{Node, Vars},
    task::{Library, ModuleSpec},
};

/// An expression as written, without braces: `when`, `until`, `failed_when`.
pub type Expression = Spanned<Arc<str>>;

#[derive(Debug)]
pub struct Playbook {
    pub path: PathBuf,
    /// Where its modules come from.
    pub library: Library,
    /// There were errors in it: parts are missing, and it must not run.
    pub broken: bool,
    pub plays: Vec<Play>,
}

#[derive(Debug)]
pub struct Play {
    pub name: String,
    pub span: Span,
    /// A host pattern; known at load, never a template.
    pub hosts: Spanned<String>,
    pub vars: Arc<Vars>,
    pub vars_files: Arc<Vars>,
    /// Batch sizes, the last one repeated; empty means all at once.
    pub serial: Vec<BatchSize>,
    /// The order in which hosts enter batches.
    pub order: HostOrder,
    pub max_fail_percentage: Option<f64>,
    pub any_errors_fatal: bool,
    pub force_handlers: bool,
    /// An ordered walk over members with gates.
    pub rollout: Option<Rollout>,
    /// `pre_tasks`, `roles`, `tasks`, `post_tasks`, in this order; handlers flush after each.
    pub sections: Vec<Section>,
    /// In the order they run in. Ask `handlers_for` which of them a name notifies.
    pub handlers: Vec<Arc<Task>>,
    /// Every use of a role in the play, in order, dependencies after the role that brought them.
    pub roles: Vec<Arc<RoleContext>>,
}

impl Play {
    /// All tasks of all sections, in order, those inside blocks as well, and those of a rollout around them.
    pub fn tasks(&self, turns: TurnsOf) -> Vec<&Arc<Task>> {
        let mut tasks = Vec::new();
        let (before, after) = match self.rollout.as_ref().map(|rollout| rollout.parts(turns).in_order()) {
            Some([begin, hop, next, before, after, back, undo, settle, end]) => {
                (vec![begin, hop, next, before], vec![after, back, undo, settle, end])
            }
            None => Default::default(),
        };
        let own = self.sections.iter().map(|section| section.items.as_slice());
        before.into_iter().chain(own).chain(after).for_each(|items| collect_tasks(items, &mut tasks));
        tasks
    }

    /// The handlers a name notifies: the last one called so (also as `role : name`), and all that listen to it.
    pub fn handlers_for(&self, name: &str) -> impl Iterator<Item = &Arc<Task>> {
        let called = self.handlers.iter().rposition(|handler| handler.is_called(name));
        let notified = move |(index, handler): &(usize, &Arc<Task>)| {
            Some(*index) == called || handler.listen.iter().any(|topic| &**topic == name)
        };
        let found: Vec<_> = self.handlers.iter().enumerate().filter(notified).map(|(_, handler)| handler).collect();
        found.into_iter()
    }
}

pub(super) fn collect_tasks<'p>(items: &'p [Item], tasks: &mut Vec<&'p Arc<Task>>) {
    for item in items {
        match item {
            Item::Task(task) => tasks.push(task),
            Item::Block(block) => {
                for part in [&block.body, &block.rescue, &block.always] {
                    collect_tasks(part, tasks);
                }
            }
            Item::FlushHandlers(_) => {}
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HostOrder {
    #[default]
    Inventory,
    ReverseInventory,
    Sorted,
    ReverseSorted,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum BatchSize {
    Count(usize),
    Percent(f64),
}

#[derive(Debug)]
pub struct Section {
    pub name: &'static str,
    pub items: Vec<Item>,
}

#[derive(Debug)]
pub enum Item {
    Task(Arc<Task>),
    Block(Arc<Block>),
    /// `meta: flush_handlers`.
    FlushHandlers(Span),
}

/// A block with its rescue and always parts. What it passes on (`when`, `tags`, `become`, `vars`, ...)
/// is already merged into its tasks.
#[derive(Debug)]
pub struct Block {
    pub name: String,
    pub span: Span,
    pub body: Vec<Item>,
    pub rescue: Vec<Item>,
    pub always: Vec<Item>,
}

/// One task with everything it inherited from play, block and role.
#[derive(Clone, Debug)]
pub struct Task {
    pub name: String,
    /// Unique inside its play: role, name, and a number where names repeat. Part of the node id.
    pub path: Arc<str>,
    pub span: Span,
    pub module: &'static ModuleSpec,
    /// A mapping; values may be templates.
    pub args: Node,
    /// What the module says it may do, as far as the arguments are known at load.
    pub effects: Effects,
    /// All must hold. Conditions of enclosing blocks, roles and imports come first.
    pub when: Vec<Expression>,
    pub loops: Option<Loop>,
    pub register: Option<Spanned<Arc<str>>>,
    pub notify: Vec<Spanned<Arc<str>>>,
    /// For handlers: further names they answer to.
    pub listen: Vec<Arc<str>>,
    pub tags: Vec<Arc<str>>,
    pub r#become: Become,
    /// Merged from play, block and task; later entries win.
    pub environment: Vec<Node>,
    pub delegate_to: Option<Node>,
    pub on: Option<Spanned<On>>,
    pub once_per: Option<Spanned<OncePer>>,
    pub run_once: bool,
    pub needs: Vec<Need>,
    pub changed_when: Vec<Expression>,
    pub failed_when: Vec<Expression>,
    pub until: Vec<Expression>,
    pub retries: u32,
    pub delay: Duration,
    pub ignore_errors: bool,
    pub ignore_unreachable: bool,
    pub any_errors_fatal: bool,
    pub no_log: bool,
    /// `Some(false)`: runs for real even in check mode.
    pub check_mode: Option<bool>,
    pub diff: Option<bool>,
    pub timeout: Option<Duration>,
    /// `async`: the longest a detached command may run.
    pub detach: Option<Duration>,
    /// How often a detached command is asked for; zero means start and go on.
    pub poll: Duration,
    pub throttle: Option<usize>,
    /// Lowest first: those of blocks from the outermost on, the task's own, those given to imports.
    pub vars: Vec<Arc<Vars>>,
    pub role: Option<Arc<RoleContext>>,
    /// Folder of the playbook or task file, for relative files.
    pub folder: Place,
    /// Folder of the playbook, or where the program was started if that is embedded: the last place for them.
    pub playbook_folder: Place,
}

/// What a condition says, if it is nothing but `true` or `false`.
pub(crate) fn constant(condition: &Expression) -> Option<bool> {
    match condition.value.trim() {
        "true" | "True" => Some(true),
        "false" | "False" => Some(false),
        _ => None,
    }
}

impl Task {
    /// `changed_when: false`.
    pub(crate) fn says_unchanged(&self) -> bool {
        self.changed_when.iter().any(|condition| constant(condition) == Some(false))
    }

    /// `failed_when: false`.
    pub(crate) fn never_fails(&self) -> bool {
        self.failed_when.iter().any(|condition| constant(condition) == Some(false))
    }

    /// The names by which a handler is notified.
    pub fn answers_to(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.name.as_str()).chain(self.listen.iter().map(|topic| &**topic))
    }

    fn is_called(&self, name: &str) -> bool {
        let with_role = || name.split_once(" : ").map(|(role, name)| (role.trim(), name.trim()));
        let role = self.role.as_ref().map_or("", |role| &role.name);
        self.name == name || with_role().is_some_and(|parts| parts == (role, self.name.as_str()))
    }
}

#[derive(Clone, Debug)]
pub struct Loop {
    pub items: Node,
    pub var: Arc<str>,
    pub index_var: Option<Arc<str>>,
    pub label: Option<Node>,
    pub pause: Duration,
}

/// `become`, as far as the playbook says anything about it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Become {
    /// `Some(false)` also overrides the inventory and the command line.
    pub wanted: Option<bool>,
    /// A user name; may be a template.
    pub user: Option<Arc<str>>,
}

/// Where a task runs, if not on its own host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    Hypervisor,
    /// The operator's machine, for modules that need no target.
    Operator,
}

/// One run shared by all hosts that have the same hypervisor, cluster or zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OncePer {
    Hypervisor,
    Cluster,
    Zone,
}

/// An extra edge: this task waits for that one, on the hosts of the pattern or on all.
#[derive(Clone, Debug)]
pub struct Need {
    pub task: Spanned<Arc<str>>,
    pub hosts: Option<Spanned<String>>,
}

/// What a role brings to its tasks.
#[derive(Debug)]
pub struct RoleContext {
    pub name: Arc<str>,
    pub folder: Place,
    pub defaults: Arc<Vars>,
    pub vars: Arc<Vars>,
    /// Arguments given where the role was used.
    pub params: Arc<Vars>,
    /// The role that depends on this one or imports it. Its variables are visible here, below the own ones.
    pub parent: Option<Arc<RoleContext>>,
}

impl RoleContext {
    /// This role and those that brought it, the outermost first.
    pub fn chain(&self) -> impl Iterator<Item = &RoleContext> {
        let mut chain: Vec<&RoleContext> = std::iter::successors(Some(self), |role| role.parent.as_deref()).collect();
        chain.reverse();
        chain.into_iter()
    }
}
