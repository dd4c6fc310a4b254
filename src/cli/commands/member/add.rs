//! `etcdrun member add NAME`: one member more.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    clusters::the_cluster,
    members::{CareArgs, Shared, change},
};
use crate::membership::{Request, Verb};

#[derive(Args, Debug)]
pub struct AddArgs {
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
}

pub fn run(args: &AddArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let request = Request {
        new_name: Some(args.name.clone()),
        to: args.to.clone(),
        ip: args.ip.clone(),
        snapshot: !args.care.no_snapshot,
        ..args.shared.request(Verb::Add)
    };
    change(&request, |inventory| the_cluster(inventory, args.cluster.as_deref()), &args.shared, invocation)
}
