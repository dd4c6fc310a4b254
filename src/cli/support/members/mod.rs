//! Changes of members, for `member`, `drain` and `undrain`: looks, decides, shows what will be done, and plays the playbook that does it.

mod prepare;
mod show;
mod survey;

use clap::Args;

pub use self::survey::Survey;
use super::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, KnownArgs, RunArgs, VarsArgs, YesArgs},
    site::{Files, Site},
    terminal::confirm,
    verb::Play,
};
use crate::{
    inventory::Inventory,
    membership::{Prepared, Request, Situation, Verb, facts},
    source::disk,
};

/// The variables of the playbook, under a name that no file has.
const VARIABLES: &str = "etcdrun member, its variables.json";

/// What those take that change who is a member.
#[derive(Args, Clone, Debug)]
pub struct CareArgs {
    /// Do not take a snapshot first
    #[arg(long, help_heading = "Run")]
    pub no_snapshot: bool,
}

/// What all of them take.
#[derive(Args, Clone, Debug)]
pub struct Shared {
    #[command(flatten)]
    pub prompt: YesArgs,

    /// Accept loss of quorum during the operation (required for clusters with one or two members)
    #[arg(long, help_heading = "Run")]
    pub allow_outage: bool,

    #[command(flatten)]
    pub known: KnownArgs,

    #[command(flatten)]
    vars: VarsArgs,

    #[command(flatten)]
    pub run: RunArgs,

    #[command(flatten)]
    pub connection: ConnectionArgs,
}

impl Shared {
    pub fn site(&self, invocation: &Invocation) -> Result<Site, CliError> {
        Site::load(&self.known, self.run.state_dir.as_deref(), invocation)
    }

    /// What is asked for, as far as all verbs say it.
    pub fn request(&self, verb: Verb) -> Request {
        Request {
            verb,
            old: None,
            new_name: None,
            to: None,
            ip: None,
            fence_unreachable: false,
            snapshot: true,
            allow_outage: self.allow_outage,
        }
    }

    /// A playbook, for hosts of a pattern alone if there is one.
    pub fn play<'a>(&'a self, playbook: &'a str, limit: Option<&str>, more_vars: Vec<String>) -> Play<'a> {
        let mut extra_vars = self.vars.extra_vars.clone();
        // What was said by a flag wins.
        extra_vars.extend(self.allow_outage.then(|| r#"{"rollout_allow_outage": true}"#.to_owned()));
        extra_vars.extend(more_vars);
        Play { playbook, hosts: self.known.only(limit), extra_vars, run: &self.run, connection: &self.connection }
    }
}

/// Looks at the cluster, decides, shows what will be done, asks, and does it.
pub fn change(
    request: &Request,
    cluster: impl FnOnce(&Inventory) -> Result<String, CliError>,
    shared: &Shared,
    invocation: &Invocation,
) -> Result<Exit, CliError> {
    // What is resumed was decided, shown and agreed to when it began.
    if invocation.resumed.is_some() {
        return play(request.verb, shared, &[], invocation);
    }
    let site = shared.site(invocation)?;
    let cluster = cluster(&site.inventory)?;
    let (survey, situations) = Survey::take(site, &[(&cluster, request.to.as_deref())], shared, invocation)?;
    let Some(situation) = situations.first() else { return Ok(Exit::Success) };
    let prepared = decide(&survey, request, situation, shared, invocation)?;
    if !shared.run.mode.check && !shared.prompt.yes && !confirm("Continue? [y/N] ", "--yes skips the prompt")? {
        invocation.print("nothing was changed\n")?;
        return Ok(Exit::Interrupted);
    }
    play(request.verb, shared, &[prepared], invocation)
}

/// The cluster of a member.
pub fn cluster_of(member: &str) -> impl FnOnce(&Inventory) -> Result<String, CliError> {
    move |inventory| Ok(facts::member(inventory, member)?.1.to_owned())
}

/// Decides, and shows what will be done.
pub fn decide(
    survey: &Survey,
    request: &Request,
    situation: &Situation,
    shared: &Shared,
    invocation: &Invocation,
) -> Result<Prepared, CliError> {
    let prepared = prepare::prepare(survey, request, situation, shared, invocation)?;
    if !invocation.json {
        invocation.print(&show::plan(&prepared, request, situation))?;
    }
    Ok(prepared)
}

/// Plays the playbook of a verb for all that was decided, each upon what was decided before it. Nothing is needed for a run that
/// goes on.
pub fn play(verb: Verb, shared: &Shared, all: &[Prepared], invocation: &Invocation) -> Result<Exit, CliError> {
    let files = if invocation.resumed.is_some() { Files::new() } else { prepare::files(all) };
    let play = shared.play(playbook(verb), None, vec![format!("@{VARIABLES}")]);
    let compiled = disk::pretend(files, || play.compile(invocation))?;
    Ok(play.run(compiled, invocation)?.exit(false))
}

fn playbook(verb: Verb) -> &'static str {
    match verb {
        Verb::Add => "member-add.yaml",
        Verb::Remove => "member-remove.yaml",
        Verb::Replace | Verb::Move => "member-replace.yaml",
        Verb::Restart => "member-restart.yaml",
    }
}
