//! `etcdrun resume [ID]`: goes on with a run, from what it was loaded from then.

use std::ffi::OsString;

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::StateArgs,
    record::{Resumed, some_paths, state_of},
};
use crate::cli::{commands, parse};
use crate::{
    source::{Diagnostic, Diagnostics, Sources, disk::Inputs},
    state::{NodeKey, Record, RunState, StateError, StateFolder, StoredRun},
};

#[derive(Args, Debug)]
#[command(
    after_help = "Tasks that are done do not run again. Tasks that were running are checked first; a command that may or may not have run is in doubt and halts the run, until --assume states its outcome.\n\nExamples:\n  etcdrun resume\n  etcdrun resume 20261115T0445 --assume done 'Restart a member/etcd-1/member/Restart etcd'"
)]
pub struct ResumeArgs {
    /// The run, or the start of its ID [default: the last one that did not succeed]
    id: Option<String>,

    /// The outcome of a command in doubt, and the id of its task; repeatable
    #[arg(long, num_args = 2, value_names = ["done|not-run", "NODE"])]
    assume: Vec<String>,

    #[command(flatten)]
    state: StateArgs,
}

pub fn run(args: &ResumeArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let state = state_of(&args.state, invocation);
    let state = StateFolder::at(std::path::absolute(state.path())?);
    let run = match &args.id {
        Some(id) => state.find(id)?,
        None => state.last_unfinished()?,
    };
    run.must_be_ours()?;
    check(&run)?;
    let bundle = run.bundle()?;
    let inputs = bundle.inputs(&state)?;
    let assumed = assumed(&args.assume, &run)?;
    std::env::set_current_dir(&bundle.folder)?;
    tell(&run, &inputs, invocation);
    let words = std::iter::once("etcdrun".to_owned()).chain(bundle.command.clone()).map(OsString::from);
    let cli = parse(words).map_err(|_| not_resumable(&run, "its command line is no longer valid"))?;
    let resumed = Resumed { state, run, inputs, assumed };
    commands::run(&cli.command, &Invocation { resumed: Some(resumed), ..invocation.repeating(bundle) })
}

fn not_resumable(run: &StoredRun, why: &str) -> CliError {
    StateError::NotResumable(run.id.to_string(), why.to_owned()).into()
}

fn check(run: &StoredRun) -> Result<(), CliError> {
    match run.state {
        RunState::Running => Err(StateError::Running(run.id.to_string()).into()),
        RunState::Done => Err(not_resumable(run, "it succeeded, and nothing is left to do")),
        _ if run.journal.lines.is_empty() => {
            Err(not_resumable(run, "it ended before its first task, so nothing was changed; run the command again"))
        }
        _ => Ok(()),
    }
}

/// What is said on the command line about nodes, by their ids.
fn assumed(words: &[String], run: &StoredRun) -> Result<Vec<(NodeKey, bool)>, CliError> {
    words.chunks(2).map(|pair| one_assumed(&pair[0], pair.get(1).map_or("", String::as_str), run)).collect()
}

fn one_assumed(what: &str, id: &str, run: &StoredRun) -> Result<(NodeKey, bool), CliError> {
    let done = match what {
        "done" => true,
        "not-run" => false,
        _ => return Err(CliError::usage(format!("--assume takes `done` or `not-run`, not `{what}`"))),
    };
    let key = run.journal.lines.iter().rev().find_map(|line| match &line.record {
        Record::Intent { key, .. } | Record::Settled { key, .. } if &*key.id == id => Some(key.clone()),
        _ => None,
    });
    match key {
        Some(key) => Ok((key, done)),
        None => {
            let nodes = run.nodes();
            let near = crate::source::did_you_mean(id, nodes.iter().map(|node| &*node.id));
            let help = near.unwrap_or_else(|| format!("`etcdrun runs show {}` lists the ids", run.id));
            Err(CliError::usage_with_help(format!("the run never reached a task `{id}`"), Some(help)))
        }
    }
}

/// What is not as it was: a line that a crash cut short, files that have changed since.
fn tell(run: &StoredRun, inputs: &Inputs, invocation: &Invocation) {
    let mut diagnostics = Diagnostics::default();
    if run.journal.torn {
        let message = "a crash has truncated the last line of the journal, which is removed";
        diagnostics.push(Diagnostic::warning(None, message));
    }
    let differing = inputs.differing();
    if !differing.is_empty() {
        let message = format!("changed since the run started: {}", some_paths(&differing));
        let help =
            "the run uses the inventory and playbooks of its start; files that tasks send or render are read now";
        diagnostics.push(Diagnostic::warning(None, message).help(help));
    }
    invocation.show_problems(&diagnostics, &Sources::default());
}
