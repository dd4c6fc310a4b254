//! `etcdrun member ...`: members come and go. Looks, shows what will be done, asks, and plays a playbook that does it.

mod adopt;
pub(super) mod facts;
mod prepare;
mod show;
mod site;

use clap::{Args, Subcommand};

pub(super) use self::{
    prepare::Prepared,
    site::{Files, Site},
};
use super::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, RunArgs, VarsArgs},
    certs::{find_cluster, the_cluster},
    terminal::confirm,
    verb::{KnownArgs, Play},
};
use crate::{
    inventory::Inventory,
    membership::{Request, Situation, Verb},
    source::disk,
};

/// The variables of the playbook, under a name that no file has.
const VARIABLES: &str = "etcdrun member, its variables.json";

#[derive(Args, Debug)]
pub struct MemberCommand {
    #[command(subcommand)]
    verb: AnyVerb,
}

#[derive(Subcommand, Debug)]
enum AnyVerb {
    #[command(flatten)]
    Change(MemberVerb),
    /// Write an inventory for an existing cluster
    Adopt(adopt::AdoptArgs),
}

#[derive(Subcommand, Debug)]
enum MemberVerb {
    /// Replace a member, failed or healthy, with a new one
    #[command(
        after_help = "A failed member is removed first: its guest is powered off, and its data is moved aside and never used again. Then its host, or the one at --ip, joins as a learner, catches up and becomes a voter. A healthy member is removed last, after the new one, with its own name and address, has become a voter.\n\nExamples:\n  etcdrun member replace etcd-2\n  etcdrun member replace etcd-2 --to hv4\n  etcdrun member replace etcd-2 --new-name etcd-4 --ip 10.0.0.24"
    )]
    Replace {
        /// The member
        name: String,
        /// The hypervisor for the new guest [default: that of the old one]
        #[arg(long, value_name = "HYPERVISOR")]
        to: Option<String>,
        /// The name of the new member [default: the old name; for a healthy member, the next free name]
        #[arg(long, value_name = "NAME")]
        new_name: Option<String>,
        /// The address of the new member, where etcd listens
        #[arg(long, value_name = "ADDRESS")]
        ip: Option<String>,
        /// Continue although the old guest's hypervisor is unreachable, so that the guest cannot be powered off
        #[arg(long)]
        fence_unreachable: bool,
        #[command(flatten)]
        care: CareArgs,
        #[command(flatten)]
        shared: Shared,
    },
    /// Add a member to a cluster
    Add {
        /// The name of the member
        name: String,
        /// The cluster [default: the only one]
        #[arg(long, value_name = "CLUSTER")]
        cluster: Option<String>,
        /// The hypervisor for its guest
        #[arg(long, value_name = "HYPERVISOR")]
        to: Option<String>,
        /// The address of the member, where etcd listens
        #[arg(long, value_name = "ADDRESS")]
        ip: Option<String>,
        #[command(flatten)]
        care: CareArgs,
        #[command(flatten)]
        shared: Shared,
    },
    /// Remove a member from its cluster for good
    Remove {
        /// The member
        name: String,
        /// Continue although its guest's hypervisor is unreachable, so that the guest cannot be powered off
        #[arg(long)]
        fence_unreachable: bool,
        #[command(flatten)]
        care: CareArgs,
        #[command(flatten)]
        shared: Shared,
    },
    /// Restart etcd on a member, while the others serve
    Restart {
        /// The member
        name: String,
        #[command(flatten)]
        shared: Shared,
    },
    /// Move a healthy member to another hypervisor: a new member there replaces it
    Move {
        /// The member
        name: String,
        /// The hypervisor for the new guest
        #[arg(long, value_name = "HYPERVISOR")]
        to: String,
        /// The name of the new member [default: the next free name]
        #[arg(long, value_name = "NAME")]
        new_name: Option<String>,
        /// The address of the new member [default: one of the cluster's address pool]
        #[arg(long, value_name = "ADDRESS")]
        ip: Option<String>,
        #[command(flatten)]
        care: CareArgs,
        #[command(flatten)]
        shared: Shared,
    },
}

/// What those take that change who is a member.
#[derive(Args, Clone, Debug)]
pub(super) struct CareArgs {
    /// Do not take a snapshot first
    #[arg(long, help_heading = "Run")]
    pub(super) no_snapshot: bool,
}

/// What all of them take.
#[derive(Args, Clone, Debug)]
pub(super) struct Shared {
    /// Do not prompt; for scripts
    #[arg(short, long, help_heading = "Run")]
    pub(super) yes: bool,

    /// Accept loss of quorum during the operation (required for clusters with one or two members)
    #[arg(long, help_heading = "Run")]
    pub(super) allow_outage: bool,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    vars: VarsArgs,

    #[command(flatten)]
    pub(super) run: RunArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

impl Shared {
    /// A playbook, for hosts of a pattern alone if there is one.
    pub(super) fn play<'a>(&'a self, playbook: &'a str, limit: Option<&str>, more_vars: Vec<String>) -> Play<'a> {
        let mut extra_vars = self.vars.extra_vars.clone();
        // What was said by a flag wins.
        extra_vars.extend(self.allow_outage.then(|| r#"{"rollout_allow_outage": true}"#.to_owned()));
        extra_vars.extend(more_vars);
        Play { playbook, hosts: self.known.only(limit), extra_vars, run: &self.run, connection: &self.connection }
    }
}

pub fn run(args: &MemberCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let verb = match &args.verb {
        AnyVerb::Change(verb) => verb,
        AnyVerb::Adopt(args) => return adopt::run(args, invocation),
    };
    let (request, shared) = verb.request();
    // What goes on was decided, shown and agreed to when it began.
    if invocation.resumed.is_some() {
        return play(request.verb, shared, &[], invocation);
    }
    let mut site = Site::load(shared, invocation)?;
    let cluster = verb.cluster(&site.inventory)?;
    let situations = site.look(&[(&cluster, request.to.as_deref())], shared, invocation)?;
    let Some(situation) = situations.first() else { return Ok(Exit::Success) };
    let prepared = decide(&site, &request, situation, shared, invocation)?;
    if !shared.run.check && !shared.yes && !confirm("Continue? [y/N] ", "--yes skips the prompt")? {
        invocation.print("nothing was changed\n")?;
        return Ok(Exit::Interrupted);
    }
    play(request.verb, shared, &[prepared], invocation)
}

/// Decides, and shows what will be done.
pub(super) fn decide(
    site: &Site,
    request: &Request,
    situation: &Situation,
    shared: &Shared,
    invocation: &Invocation,
) -> Result<Prepared, CliError> {
    let prepared = prepare::prepare(site, request, situation, shared, invocation)?;
    if !invocation.json {
        invocation.print(&show::plan(&prepared, request, situation))?;
    }
    Ok(prepared)
}

/// Plays the playbook of a verb for all that was decided, each upon what was decided before it. Nothing is needed for a run that
/// goes on.
pub(super) fn play(verb: Verb, shared: &Shared, all: &[Prepared], invocation: &Invocation) -> Result<Exit, CliError> {
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

impl MemberVerb {
    fn request(&self) -> (Request, &Shared) {
        let request = |verb, shared: &Shared| Request {
            verb,
            old: None,
            new_name: None,
            to: None,
            ip: None,
            fence_unreachable: false,
            snapshot: true,
            allow_outage: shared.allow_outage,
        };
        match self {
            Self::Replace { name, to, new_name, ip, fence_unreachable, care, shared } => {
                let (old, fence_unreachable) = (Some(name.clone()), *fence_unreachable);
                let request = Request { old, fence_unreachable, ..request(Verb::Replace, shared) };
                let request = Request { snapshot: !care.no_snapshot, ..request };
                (Request { new_name: new_name.clone(), to: to.clone(), ip: ip.clone(), ..request }, shared)
            }
            Self::Move { name, to, new_name, ip, care, shared } => {
                let request = Request { old: Some(name.clone()), to: Some(to.clone()), ..request(Verb::Move, shared) };
                let request = Request { snapshot: !care.no_snapshot, ..request };
                (Request { new_name: new_name.clone(), ip: ip.clone(), ..request }, shared)
            }
            Self::Add { name, to, ip, care, shared, .. } => {
                let request = Request { new_name: Some(name.clone()), ..request(Verb::Add, shared) };
                let request = Request { snapshot: !care.no_snapshot, ..request };
                (Request { to: to.clone(), ip: ip.clone(), ..request }, shared)
            }
            Self::Remove { name, fence_unreachable, care, shared } => {
                let (old, fence_unreachable) = (Some(name.clone()), *fence_unreachable);
                let request = Request { old, fence_unreachable, ..request(Verb::Remove, shared) };
                (Request { snapshot: !care.no_snapshot, ..request }, shared)
            }
            Self::Restart { name, shared } => {
                (Request { old: Some(name.clone()), ..request(Verb::Restart, shared) }, shared)
            }
        }
    }

    /// The cluster that it is about.
    fn cluster(&self, inventory: &Inventory) -> Result<String, CliError> {
        match self {
            Self::Add { cluster: Some(cluster), .. } => find_cluster(inventory, cluster),
            Self::Add { .. } => the_cluster(inventory, None),
            Self::Replace { name, .. }
            | Self::Remove { name, .. }
            | Self::Restart { name, .. }
            | Self::Move { name, .. } => Ok(facts::member(inventory, name)?.1.to_owned()),
        }
    }
}
