//! `etcdrun member remove NAME`: one member less.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    members::{CareArgs, Shared, change, cluster_of},
};
use crate::membership::{Request, Verb};

#[derive(Args, Debug)]
pub struct RemoveArgs {
    /// The member
    name: String,

    /// Continue although its guest's hypervisor is unreachable, so that the guest cannot be powered off
    #[arg(long)]
    fence_unreachable: bool,

    #[command(flatten)]
    care: CareArgs,

    #[command(flatten)]
    shared: Shared,
}

pub fn run(args: &RemoveArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let request = Request {
        old: Some(args.name.clone()),
        fence_unreachable: args.fence_unreachable,
        snapshot: !args.care.no_snapshot,
        ..args.shared.request(Verb::Remove)
    };
    change(&request, cluster_of(&args.name), &args.shared, invocation)
}
