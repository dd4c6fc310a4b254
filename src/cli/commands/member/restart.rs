//! `etcdrun member restart NAME`: etcd starts again, while the others serve.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    members::{Shared, change, cluster_of},
};
use crate::membership::{Request, Verb};

#[derive(Args, Debug)]
pub struct RestartArgs {
    /// The member
    name: String,

    #[command(flatten)]
    shared: Shared,
}

pub fn run(args: &RestartArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let request = Request { old: Some(args.name.clone()), ..args.shared.request(Verb::Restart) };
    change(&request, cluster_of(&args.name), &args.shared, invocation)
}
