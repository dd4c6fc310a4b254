//! Verbs are playbooks that come with the program, played for one cluster: so journal, locks, plans and `resume` apply to them
//! as to any other run.

use std::{collections::BTreeMap, path::PathBuf};

use clap::Args;
use serde_json::Value;

use super::{
    CliError, Exit, Invocation,
    args::{CheckArgs, ConnectionArgs, InventoryArgs, KnownArgs, RunArgs, SelectionArgs, VarsArgs},
    input::{Compiled, Opening, compile_all},
    run::{self, Style},
    terminal,
};
use crate::{playbook, source::disk};

/// What every verb takes that changes something.
#[derive(Args, Clone, Debug)]
pub struct VerbArgs {
    #[command(flatten)]
    pub known: KnownArgs,

    #[command(flatten)]
    pub run: RunArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,

    #[command(flatten)]
    pub vars: VarsArgs,
}

/// A playbook that comes with the program, and what it is played with.
pub struct Play<'a> {
    pub playbook: &'a str,
    pub hosts: InventoryArgs,
    pub extra_vars: Vec<String>,
    pub run: &'a RunArgs,
    pub connection: &'a ConnectionArgs,
}

impl Play<'_> {
    pub fn compile(&self, invocation: &Invocation) -> Result<Compiled, CliError> {
        let vars = VarsArgs { extra_vars: self.extra_vars.clone() };
        let selection = SelectionArgs { vars, ..SelectionArgs::default() };
        let load = run::load_options(invocation);
        // Not what happens to have that name in the current folder.
        let name = playbook::embedded_name(self.playbook);
        compile_all(&[name], &self.hosts, &selection, &load, Opening::All, invocation)
    }

    pub fn run(&self, compiled: Compiled, invocation: &Invocation) -> Result<run::Ended, CliError> {
        let style = if self.run.mode.check { Style::Plan } else { Style::Playbook };
        run::execute(compiled, self.connection, self.run, style, invocation)
    }
}

/// The variables of the playbook, under a name that no file has.
const VARIABLES: &str = "etcdrun, variables of a verb.json";

/// Plays a playbook for some of the hosts, with variables. They are kept with what the run was loaded from: one that goes on has
/// those that it began with, whatever has come up since.
pub fn play(
    playbook: &str,
    limit: &str,
    vars: &Value,
    args: &VerbArgs,
    invocation: &Invocation,
) -> Result<Exit, CliError> {
    let style = if args.run.mode.check { Style::Plan } else { Style::Playbook };
    Ok(ended(style, playbook, limit, vars, args, invocation)?.exit(false))
}

/// Shows what that would do, and tells whether it is anything (`Exit::WouldChange`).
pub fn foresee(
    playbook: &str,
    limit: &str,
    vars: &Value,
    args: &VerbArgs,
    invocation: &Invocation,
) -> Result<Exit, CliError> {
    let run = RunArgs { mode: CheckArgs { check: true }, ..args.run.clone() };
    Ok(ended(Style::Plan, playbook, limit, vars, &VerbArgs { run, ..args.clone() }, invocation)?.exit(true))
}

/// Plays one that only looks: it changes nothing, and tells what it has seen rather than what it would do.
pub fn look(
    playbook: &str,
    limit: &str,
    vars: &Value,
    args: &VerbArgs,
    invocation: &Invocation,
) -> Result<Exit, CliError> {
    let run = RunArgs { mode: CheckArgs { check: true }, ..args.run.clone() };
    Ok(ended(Style::Playbook, playbook, limit, vars, &VerbArgs { run, ..args.clone() }, invocation)?.exit(false))
}

fn ended(
    style: Style,
    playbook: &str,
    limit: &str,
    vars: &Value,
    args: &VerbArgs,
    invocation: &Invocation,
) -> Result<run::Ended, CliError> {
    let mut extra_vars = args.vars.extra_vars.clone();
    // What was said by a flag wins.
    extra_vars.push(format!("@{VARIABLES}"));
    let files = match invocation.resumed {
        Some(_) => BTreeMap::new(),
        None => BTreeMap::from([(PathBuf::from(VARIABLES), vars.to_string().into_bytes())]),
    };
    let hosts = args.known.only(Some(limit));
    let play = Play { playbook, hosts, extra_vars, run: &args.run, connection: &args.connection };
    let compiled = disk::pretend(files, || play.compile(invocation))?;
    run::execute(compiled, &args.connection, &args.run, style, invocation)
}

/// Asks before something that cannot be taken back. What goes on was asked before; a plan does nothing.
pub fn confirm(question: &str, yes: bool, check: bool, invocation: &Invocation) -> Result<(), CliError> {
    if yes || check || invocation.resumed.is_some() {
        return Ok(());
    }
    match terminal::confirm(
        &format!("{question} [y/N] "),
        "--yes skips the prompt; --check only shows what would be done",
    )? {
        true => Ok(()),
        false => Err(CliError::Interrupted),
    }
}

/// Asks for a name to be typed, before something that nobody should do by the way.
pub fn confirm_name(question: &str, name: &str, yes: bool, invocation: &Invocation) -> Result<(), CliError> {
    if yes || invocation.resumed.is_some() {
        return Ok(());
    }
    let question = format!("{question}\nType `{name}` to continue: ");
    match terminal::ask(&question, "--yes skips the prompt; --check only shows what would be done")? == name {
        true => Ok(()),
        false => Err(CliError::Interrupted),
    }
}
