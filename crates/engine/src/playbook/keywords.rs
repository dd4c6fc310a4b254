//! The keywords: what each is called, where it may stand, what it takes, what it means.
//!
//! One table feeds the check for unknown keys, the JSON schema and the documentation.

use crate::source::{Diagnostic, Key, did_you_mean};

/// What a keyword can stand on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    Play,
    ImportPlaybook,
    /// An entry under `roles:` or in a role's `dependencies`.
    Role,
    Block,
    /// `import_tasks`, `import_role` and their `include_` twins.
    Include,
    Task,
    Handler,
}

impl Holder {
    /// For messages: "unknown key `x` in a task".
    pub(super) fn article(self) -> &'static str {
        match self {
            Self::Play => "a play",
            Self::ImportPlaybook => "an `import_playbook`",
            Self::Role => "a role entry",
            Self::Block => "a block",
            Self::Include => "an import",
            Self::Task => "a task",
            Self::Handler => "a handler",
        }
    }
}

/// What a keyword takes, as far as an editor needs to know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    Text,
    Bool,
    Count,
    Number,
    Duration,
    /// One word or a list of words.
    Words,
    OneOf(&'static [&'static str]),
    /// An expression, a boolean, or a list of expressions.
    Condition,
    Mapping,
    Rollout,
    /// A mapping, or a template that renders to one.
    Environment,
    /// A list, or a template that renders to one.
    Items,
    LoopControl,
    Serial,
    Needs,
    Roles,
    Tasks,
    RoleName,
    FileName,
}

#[derive(Debug)]
pub(super) struct Keyword {
    pub(super) name: &'static str,
    pub(super) shape: Shape,
    pub(super) on: &'static [Holder],
    pub(super) doc: &'static str,
}

const PLAY: &[Holder] = &[Holder::Play];
const TASK: &[Holder] = &[Holder::Task, Holder::Handler];
const BLOCK: &[Holder] = &[Holder::Block];
const INCLUDE: &[Holder] = &[Holder::Include];
const NAMED: &[Holder] = &[
    Holder::Play,
    Holder::ImportPlaybook,
    Holder::Role,
    Holder::Block,
    Holder::Include,
    Holder::Task,
    Holder::Handler,
];
const TAGGED: &[Holder] = NAMED;
const CONDITIONAL: &[Holder] =
    &[Holder::ImportPlaybook, Holder::Role, Holder::Block, Holder::Include, Holder::Task, Holder::Handler];
/// What plays and blocks pass on to their tasks.
const INHERITED: &[Holder] =
    &[Holder::Play, Holder::Role, Holder::Block, Holder::Include, Holder::Task, Holder::Handler];
const BELOW_PLAY: &[Holder] = &[Holder::Role, Holder::Block, Holder::Include, Holder::Task, Holder::Handler];

const fn keyword(name: &'static str, on: &'static [Holder], shape: Shape, doc: &'static str) -> Keyword {
    Keyword { name, shape, on, doc }
}

pub(super) static KEYWORDS: &[Keyword] = &[
    keyword("name", NAMED, Shape::Text, "What a person reads in reports, and what `needs` and `notify` refer to."),
    keyword("hosts", PLAY, Shape::Words, "A host pattern, or a list of them."),
    keyword(
        "import_playbook",
        &[Holder::ImportPlaybook],
        Shape::FileName,
        "Another playbook, whose plays are inserted here.",
    ),
    keyword("vars", NAMED, Shape::Mapping, "Variables for what is below."),
    keyword("vars_files", PLAY, Shape::Words, "Files of variables, relative to the playbook; later ones win."),
    keyword("roles", PLAY, Shape::Roles, "Roles, run after `pre_tasks` and before `tasks`."),
    keyword("pre_tasks", PLAY, Shape::Tasks, "Tasks before the roles."),
    keyword("tasks", PLAY, Shape::Tasks, "Tasks."),
    keyword("post_tasks", PLAY, Shape::Tasks, "Tasks after everything else."),
    keyword("handlers", PLAY, Shape::Tasks, "Tasks that run once, when notified."),
    keyword("serial", PLAY, Shape::Serial, "Batch sizes: a count, a percentage, or a list of them."),
    keyword("order", PLAY, Shape::OneOf(ORDERS), "The order in which hosts enter batches."),
    keyword("max_fail_percentage", PLAY, Shape::Number, "The play ends when more of a batch than this has failed."),
    keyword("force_handlers", PLAY, Shape::Bool, "Notified handlers run also on hosts that failed."),
    keyword("gather_facts", PLAY, Shape::Bool, "Accepted; facts are gathered when something reads them."),
    keyword("strategy", PLAY, Shape::OneOf(&["free", "linear"]), "Accepted; hosts always run free of each other."),
    keyword("rollout", PLAY, Shape::Rollout, "An ordered walk over members with gates."),
    keyword("collections", PLAY, Shape::Words, "Accepted and ignored."),
    keyword("role", &[Holder::Role], Shape::RoleName, "The role's name, or the path of its directory."),
    keyword("block", BLOCK, Shape::Tasks, "Tasks that share keywords."),
    keyword("rescue", BLOCK, Shape::Tasks, "Tasks that run when one of the block failed."),
    keyword("always", BLOCK, Shape::Tasks, "Tasks that run whatever happened in the block."),
    keyword("import_tasks", INCLUDE, Shape::FileName, "A file of tasks that stand here."),
    keyword("include_tasks", INCLUDE, Shape::FileName, "The same as `import_tasks`."),
    keyword("import_role", INCLUDE, Shape::RoleName, "A role whose tasks stand here."),
    keyword("include_role", INCLUDE, Shape::RoleName, "The same as `import_role`."),
    keyword("when", CONDITIONAL, Shape::Condition, "Skips the task unless all conditions are true."),
    keyword("tags", TAGGED, Shape::Words, "Tags for `--tags` and `--skip-tags`; `always` and `never` are special."),
    keyword("become", INHERITED, Shape::Bool, "Runs as another user, by sudo."),
    keyword("become_user", INHERITED, Shape::Text, "The user to become; default: root."),
    keyword("become_method", INHERITED, Shape::OneOf(&["sudo"]), "Only `sudo`."),
    keyword("environment", INHERITED, Shape::Environment, "Environment variables of commands; no secrets."),
    keyword("no_log", INHERITED, Shape::Bool, "Keeps arguments and results out of every output."),
    keyword("ignore_errors", INHERITED, Shape::Bool, "A failure is recorded and the host continues."),
    keyword("ignore_unreachable", INHERITED, Shape::Bool, "An unreachable host is recorded and continues."),
    keyword("any_errors_fatal", INHERITED, Shape::Bool, "A failure on one host ends the play on all."),
    keyword("check_mode", INHERITED, Shape::Bool, "`false` runs for real even in check mode, `true` never does."),
    keyword("diff", INHERITED, Shape::Bool, "Whether to show what changes in files."),
    keyword("timeout", INHERITED, Shape::Duration, "The longest a task may take."),
    keyword("throttle", INHERITED, Shape::Count, "How many hosts may run the task at once."),
    keyword("run_once", INHERITED, Shape::Bool, "Runs on the first host only, for all."),
    keyword("delegate_to", BELOW_PLAY, Shape::Text, "The host to run on instead."),
    keyword("on", BELOW_PLAY, Shape::OneOf(&["hypervisor", "operator"]), "Runs on the host's hypervisor, or here."),
    keyword("once_per", BELOW_PLAY, Shape::OneOf(&["hypervisor", "cluster", "zone"]), "One run shared by its hosts."),
    keyword("notify", BELOW_PLAY, Shape::Words, "Handlers to run if the task changed something."),
    keyword("needs", TASK, Shape::Needs, "Tasks to wait for, beyond the order of the play."),
    keyword("listen", &[Holder::Handler], Shape::Words, "Further names that notify this handler."),
    keyword("action", TASK, Shape::Mapping, "`{module: NAME, ...}`, the long way to call a module."),
    keyword("args", TASK, Shape::Mapping, "Further arguments, for modules that take a bare string."),
    keyword("loop", TASK, Shape::Items, "Runs once for each item."),
    keyword("with_items", TASK, Shape::Items, "As `loop`, with lists inside the list flattened once."),
    keyword("loop_control", TASK, Shape::LoopControl, "Names and pace of a loop."),
    keyword("register", TASK, Shape::Text, "The variable that stores the result."),
    keyword("changed_when", TASK, Shape::Condition, "Decides whether the task counts as changed."),
    keyword("failed_when", TASK, Shape::Condition, "Decides whether the task failed."),
    keyword("until", TASK, Shape::Condition, "Repeats the task until all conditions are true."),
    keyword("retries", TASK, Shape::Count, "How often to repeat; 3 with `until`."),
    keyword("delay", TASK, Shape::Duration, "The wait between repeats; default: 5 seconds."),
    keyword("async", TASK, Shape::Duration, "Detaches the command and lets it run this long."),
    keyword("poll", TASK, Shape::Duration, "The interval to poll a detached command; 0 continues at once."),
];

pub(super) const ORDERS: &[&str] = &["inventory", "sorted", "reverse_inventory", "reverse_sorted"];

pub(super) fn is_keyword(name: &str, on: Holder) -> bool {
    KEYWORDS.iter().any(|keyword| keyword.name == name && keyword.on.contains(&on))
}

pub(super) fn keywords_on(on: Holder) -> impl Iterator<Item = &'static Keyword> {
    KEYWORDS.iter().filter(move |keyword| keyword.on.contains(&on))
}

pub(super) fn names_on(on: Holder) -> impl Iterator<Item = &'static str> {
    keywords_on(on).map(|keyword| keyword.name)
}

/// What is wrong with a key that is no keyword here, and what to write instead.
pub(super) fn unknown_key(key: &Key, on: Holder) -> Diagnostic {
    let name = &*key.name;
    if let Some(help) = instead_of(name) {
        return Diagnostic::error(key.span, format!("`{name}` is not supported")).help(help);
    }
    if let Some(keyword) = KEYWORDS.iter().find(|keyword| keyword.name == name) {
        let places = keyword.on.iter().map(|on| on.article()).collect::<Vec<_>>().join(", ");
        return Diagnostic::error(key.span, format!("`{name}` cannot stand on {}", on.article()))
            .help(format!("it can stand on {places}"));
    }
    let unknown = Diagnostic::error(key.span, format!("unknown key `{name}` in {}", on.article()));
    let near = did_you_mean(name, names_on(on));
    unknown.maybe_help(near)
}

/// Ansible's keywords that have no place here, each with the way to the same end.
fn instead_of(name: &str) -> Option<&'static str> {
    Some(match name {
        "remote_user" | "port" | "connection" => "how a host is reached belongs in the inventory, under `ssh`",
        "local_action" => "write the module as usual, and `on: operator`",
        "vars_prompt" => "a run does not prompt; pass the value with -e, or set it in the inventory",
        "module_defaults" => "write the arguments out, or put them into a variable",
        "become_exe" | "become_flags" => "become always runs plain sudo",
        "gather_subset" | "gather_timeout" | "fact_path" => "facts are gathered when something reads them",
        "debugger" => "run with -v, or with --start-at-task to continue from a task",
        "with_dict" => "write `loop: \"{{ mapping | dictsort }}\"`, or a list",
        "with_fileglob" => {
            "list the files under `loop`: what a playbook does must be known without looking at the disk"
        }
        "with_sequence" => "write `loop: \"{{ range(1, 4) | list }}\"`",
        "with_subelements" | "with_nested" | "with_together" => "build the list in a variable, and use `loop`",
        "apply" => "write the keywords on the import itself; they are passed on",
        _ if name.starts_with("with_") => "write `loop`",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_keyword_is_documented() {
        let manual = include_str!("../../../../docs/playbooks.md");
        let missing: Vec<&str> =
            KEYWORDS.iter().map(|keyword| keyword.name).filter(|name| !manual.contains(&format!("`{name}"))).collect();
        assert_eq!(missing, [""; 0]);
    }

    #[test]
    fn keywords_are_told_from_each_other() {
        let mut names: Vec<&str> = KEYWORDS.iter().map(|keyword| keyword.name).collect();
        names.sort_unstable();
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]));
        assert!(is_keyword("when", Holder::Task) && !is_keyword("when", Holder::Play));
    }
}
