//! `etcdrun certs VERB`: certificates of clusters. `list`, `issue` and `export` work on the operator's disk and connect to nothing; `renew` and
//! `rotate-ca` play shipped playbooks.

mod export;
mod issue;
mod list;
mod renew;
mod rotate_ca;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::Value;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, KeyArgs, KnownArgs, RunArgs, VarsArgs},
    site::Site,
    verb::Play,
};

#[derive(Args, Debug)]
pub struct CertsCommand {
    #[command(subcommand)]
    verb: Verb,

    /// Inventory file, directory or executable; several are merged [default: inventory/ or inventory.yaml]
    #[arg(short, long, value_name = "PATH", global = true)]
    inventory: Vec<PathBuf>,

    /// The state directory for certificates [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER", global = true)]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List CAs and the certificates they have issued, with expiry; `etcdrun status` shows the ones that members use
    List(list::ListArgs),
    /// Issue a certificate for a user of etcd, unless there is a valid one
    Issue(issue::IssueArgs),
    /// Renew certificates of members and users that expire soon or have expired; nothing restarts
    Renew(Box<renew::RenewArgs>),
    /// Rotate a cluster's CA, in three phases
    RotateCa(Box<rotate_ca::RotateArgs>),
    /// Write a user's certificate and key, and the CAs to trust, into a directory for other tools
    Export(export::ExportArgs),
}

#[derive(Args, Debug)]
struct OfCluster {
    /// The cluster [default: all for `list`, else the only one]
    #[arg(short, long, value_name = "NAME")]
    cluster: Option<String>,
}

/// What the verbs share.
struct Common {
    known: KnownArgs,
    state_dir: Option<PathBuf>,
}

impl Common {
    fn site(&self, invocation: &Invocation) -> Result<Site, CliError> {
        Site::load(&self.known, self.state_dir.as_deref(), invocation)
    }

    /// A playbook, for the hosts of a pattern, or all.
    fn play<'a>(
        &self,
        playbook: &'a str,
        limit: Option<&str>,
        (given, own): (&VarsArgs, Option<&Value>),
        (run, connection): (&'a RunArgs, &'a ConnectionArgs),
    ) -> Play<'a> {
        // What was said by a flag of the verb wins.
        let extra_vars = given.extra_vars.iter().cloned().chain(own.map(ToString::to_string)).collect();
        Play { playbook, hosts: self.known.only(limit), extra_vars, run, connection }
    }
}

impl CertsCommand {
    pub fn prints_document(&self) -> bool {
        matches!(self.verb, Verb::List(_))
    }
}

pub fn run(args: &CertsCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let known = KnownArgs { inventory: args.inventory.clone(), keys: args.keys.clone() };
    let common = Common { known, state_dir: args.state_dir.clone() };
    match &args.verb {
        Verb::List(args) => list::run(args, &common, invocation),
        Verb::Issue(args) => issue::run(args, &common, invocation),
        Verb::Renew(args) => renew::run(args, &common, invocation),
        Verb::RotateCa(args) => rotate_ca::run(args, &common, invocation),
        Verb::Export(args) => export::run(args, &common, invocation),
    }
}
