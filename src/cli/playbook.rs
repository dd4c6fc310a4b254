//! `etcdrun playbook FILE...`: load, compile, run.

use std::path::PathBuf;

use clap::Args;

use super::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, InventoryArgs, RunArgs, SelectionArgs},
    input::{Opening, compile_all},
    listing, plan,
    run::{self, Style},
};

#[derive(Args, Debug)]
pub struct PlaybookArgs {
    /// Playbooks: paths, names in ./playbooks, or shipped playbooks
    #[arg(required_unless_present = "plan", value_name = "FILE")]
    playbooks: Vec<String>,

    /// Run the plan that `plan --out` has saved in this file, if it is still up to date
    #[arg(long, value_name = "PLAN", help_heading = "Run", conflicts_with_all = ["playbooks", "inventory", "limit",
        "tags", "skip_tags", "start_at_task", "extra_vars", "check", "list_hosts", "list_tasks", "list_tags", "syntax_check"])]
    pub(super) plan: Option<PathBuf>,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    pub(super) run: RunArgs,

    #[command(flatten)]
    pub(super) connection: ConnectionArgs,

    /// With --check: exit with 2 if something would or might change, with 1 if a task fails
    #[arg(long, requires = "check", help_heading = "Run")]
    detailed_exitcode: bool,

    /// List the hosts of each play, and run nothing
    #[arg(long, help_heading = "Instead of running")]
    list_hosts: bool,

    /// List the tasks of each play, and run nothing
    #[arg(long, help_heading = "Instead of running")]
    list_tasks: bool,

    /// List the tags of each play, and run nothing
    #[arg(long, help_heading = "Instead of running")]
    list_tags: bool,

    /// Check inventory and playbooks, and run nothing
    #[arg(long, help_heading = "Instead of running")]
    syntax_check: bool,
}

pub fn run(args: &PlaybookArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    if let Some(path) = &args.plan {
        return plan::apply(path, args, invocation);
    }
    let load = run::load_options(invocation);
    let list = listing::Parts { hosts: args.list_hosts, tasks: args.list_tasks, tags: args.list_tags };
    let runs = !list.any() && !args.syntax_check;
    let opening = if runs { Opening::All } else { Opening::FilesOnly };
    let compiled = compile_all(&args.playbooks, &args.inventory, &args.selection, &load, opening, invocation)?;
    if list.any() {
        invocation.print(&listing::render(&compiled.graphs, list, invocation.json))?;
        return Ok(Exit::Success);
    }
    if args.syntax_check {
        if !invocation.json {
            invocation.print("no errors found\n")?;
        }
        return Ok(Exit::Success);
    }
    let ended = run::execute(compiled, &args.connection, &args.run, Style::Playbook, invocation)?;
    Ok(ended.exit(args.detailed_exitcode))
}
