//! `etcdrun member move NAME --to HYPERVISOR`: a new member on another hypervisor, for a healthy one.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    members::{CareArgs, Shared, change, cluster_of},
};
use crate::membership::{Request, Verb};

#[derive(Args, Debug)]
pub struct MoveArgs {
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
}

pub fn run(args: &MoveArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let request = Request {
        old: Some(args.name.clone()),
        new_name: args.new_name.clone(),
        to: Some(args.to.clone()),
        ip: args.ip.clone(),
        snapshot: !args.care.no_snapshot,
        ..args.shared.request(Verb::Move)
    };
    change(&request, cluster_of(&args.name), &args.shared, invocation)
}
