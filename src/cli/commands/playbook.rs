//! `etcdrun playbook FILE...`: load, compile, run.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{CheckArgs, ConnectionArgs, InventoryArgs, RunArgs, SelectionArgs},
    input::{Opening, compile_all},
    listing,
    planned::{Planned, not_run},
    record::some_paths,
    run::{self, Style},
};
use crate::cli::{commands::Command, parse};

use crate::state::PlanFile;

#[derive(Args, Debug)]
pub struct PlaybookArgs {
    /// Playbooks: paths, names in ./playbooks, or shipped playbooks
    #[arg(required_unless_present = "plan", value_name = "FILE")]
    playbooks: Vec<String>,

    /// Run the plan that `plan --out` has saved in this file, if it is still up to date
    #[arg(long, value_name = "PLAN", help_heading = "Run", conflicts_with_all = ["playbooks", "inventory", "limit",
        "tags", "skip_tags", "start_at_task", "extra_vars", "check", "list_hosts", "list_tasks", "list_tags", "syntax_check"])]
    plan: Option<PathBuf>,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    connection: ConnectionArgs,

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
        return apply(path, args, invocation);
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

/// `playbook --plan PLAN`: from what is in the file, and not from what is on the disk.
fn apply(path: &Path, given: &PlaybookArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let plan = PlanFile::read(path)?;
    refuse_moved_files(&plan)?;
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let (state_dir, path) = (given.run.state_dir.as_ref().map(absolute), absolute(&path.to_owned()));
    let password = given.connection.become_password_file.as_ref().map(absolute);
    let words = std::iter::once("etcdrun".to_owned()).chain(plan.bundle.command.clone()).map(OsString::from);
    let Ok(Command::Playbook(mut args)) = parse(words).map(|cli| cli.command) else {
        return Err(not_run(&path, "its command line is no longer valid"));
    };
    std::env::set_current_dir(&plan.bundle.folder)?;
    args.run = RunArgs {
        mode: CheckArgs::default(),
        state_dir,
        forks: given.run.forks.or(args.run.forks),
        ..given.run.clone()
    };
    args.connection.ask_become_pass |= given.connection.ask_become_pass;
    args.connection.become_password_file = password.or(args.connection.become_password_file);
    let planned = Planned { path, inputs: plan.inputs(), graphs: plan.graphs };
    let planned = Invocation { planned: Some(planned), ..invocation.repeating(plan.bundle) };
    run(&args, &planned)
}

fn refuse_moved_files(plan: &PlanFile) -> Result<(), CliError> {
    let moved = plan.moved_files();
    if moved.is_empty() {
        return Ok(());
    }
    Err(CliError::Moved(some_paths(&moved)))
}
