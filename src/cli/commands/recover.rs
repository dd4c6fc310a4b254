//! `etcdrun recover CLUSTER`: says what is left of a cluster that has lost its majority, asks, and brings it back.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::YesArgs,
    clusters::find_cluster,
    site::Site,
    verb::{VerbArgs, confirm_name, look, play},
};

#[derive(Args, Debug)]
#[command(
    after_help = "If a majority of the members still has its data, etcdrun starts etcd there, and nothing is lost. Otherwise it takes the data of the most up-to-date member and creates a new cluster from it on all members of the inventory, which must be reachable: remove lost hosts from the inventory first, or replace them. Old data is moved aside. A cluster that still serves is refused. If no member has data, use `etcdrun restore` with a backup.\n\nExamples:\n  etcdrun recover prod --check\n  etcdrun recover prod"
)]
pub struct RecoverArgs {
    /// The cluster
    cluster: String,

    /// Create a new cluster from the data of this member, even if another is more up to date, or starting etcd would be enough
    #[arg(long, value_name = "MEMBER")]
    through: Option<String>,

    /// Continue although unreachable members may serve, which creates two clusters, or although a restore was interrupted
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    prompt: YesArgs,

    #[command(flatten)]
    args: VerbArgs,
}

pub fn run(args: &RecoverArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = Site::load(&args.args.known, args.args.run.state_dir.as_deref(), invocation)?;
    find_cluster(&site.inventory, &args.cluster)?;
    let mut vars = json!({ "recover_force": args.force });
    if let Some(through) = &args.through {
        vars["recover_through"] = Value::from(through.as_str());
    }
    // What goes on was looked at and agreed to when it began.
    if invocation.resumed.is_none() {
        let exit = look("recover-look.yaml", &args.cluster, &vars, &args.args, invocation)?;
        if exit != Exit::Success || args.args.run.mode.check {
            return Ok(exit);
        }
        let question = format!("Recover {} like this? No data is deleted: replaced data is moved aside.", args.cluster);
        confirm_name(&question, &args.cluster, args.prompt.yes, invocation)?;
    }
    play("recover.yaml", &args.cluster, &vars, &args.args, invocation)
}
