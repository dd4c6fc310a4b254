//! `etcdrun member VERB`: changes of a cluster's members, and inventories for clusters that exist already.

mod add;
mod adopt;
mod r#move;
mod remove;
mod replace;
mod restart;

use clap::{Args, Subcommand};

use crate::cli::support::{CliError, Exit, Invocation};

#[derive(Args, Debug)]
pub struct MemberCommand {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Replace a member, failed or healthy, with a new one
    Replace(replace::ReplaceArgs),
    /// Add a member to a cluster
    Add(add::AddArgs),
    /// Remove a member from its cluster for good
    Remove(remove::RemoveArgs),
    /// Restart etcd on a member, while the others serve
    Restart(restart::RestartArgs),
    /// Move a healthy member to another hypervisor: a new member there replaces it
    Move(r#move::MoveArgs),
    /// Write an inventory for an existing cluster
    Adopt(adopt::AdoptArgs),
}

pub fn run(args: &MemberCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    match &args.verb {
        Verb::Replace(args) => replace::run(args, invocation),
        Verb::Add(args) => add::run(args, invocation),
        Verb::Remove(args) => remove::run(args, invocation),
        Verb::Restart(args) => restart::run(args, invocation),
        Verb::Move(args) => r#move::run(args, invocation),
        Verb::Adopt(args) => adopt::run(args, invocation),
    }
}
