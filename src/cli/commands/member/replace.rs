//! `etcdrun member replace NAME`: a new member for a failed or healthy one.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    members::{CareArgs, Shared, change, cluster_of},
};
use crate::membership::{Request, Verb};

#[derive(Args, Debug)]
#[command(
    after_help = "A failed member is removed first: its guest is powered off, and its data is moved aside and never used again. Then its host, or the one at --ip, joins as a learner, catches up and becomes a voter. A healthy member is removed last, after the new one, with its own name and address, has become a voter.\n\nExamples:\n  etcdrun member replace etcd-2\n  etcdrun member replace etcd-2 --to hv4\n  etcdrun member replace etcd-2 --new-name etcd-4 --ip 10.0.0.24"
)]
pub struct ReplaceArgs {
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
}

pub fn run(args: &ReplaceArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let request = Request {
        old: Some(args.name.clone()),
        new_name: args.new_name.clone(),
        to: args.to.clone(),
        ip: args.ip.clone(),
        fence_unreachable: args.fence_unreachable,
        snapshot: !args.care.no_snapshot,
        ..args.shared.request(Verb::Replace)
    };
    change(&request, cluster_of(&args.name), &args.shared, invocation)
}
