//! `etcdrun recover CLUSTER`: says what is left of a cluster that has lost its majority, asks, and brings it back.

use clap::Args;
use serde_json::{Value, json};

use super::{
    CliError, Exit, Invocation,
    certs::find_cluster,
    verb::{VerbArgs, confirm_name, known, look, play},
};

#[derive(Args, Debug)]
#[command(
    after_help = "Where a majority of the members still has its data, it starts etcd there, and nothing is lost. Else it takes the data of the member\nthat has the most, and makes a new cluster of it on all members of the inventory, which must be reached: put machines that are\ngone out of it, or new ones in their place. Old data is set aside. A cluster that still serves is refused. Where no member has\ndata, `etcdrun restore` takes a backup.\n\nExamples:\n  etcdrun recover prod --check\n  etcdrun recover prod"
)]
pub struct RecoverArgs {
    /// The cluster
    cluster: String,

    /// Make a new cluster of what this member has, also where another has more, or where starting etcd would be enough
    #[arg(long, value_name = "MEMBER")]
    through: Option<String>,

    /// Go on although members that cannot be asked may serve, which makes two clusters, or although a restore broke off
    #[arg(long)]
    force: bool,

    /// Do not ask
    #[arg(short, long)]
    yes: bool,

    #[command(flatten)]
    args: VerbArgs,
}

pub fn run(args: &RecoverArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let known = known(&args.args.known, args.args.run.state_dir.as_deref(), invocation)?;
    find_cluster(&known.inventory, &args.cluster)?;
    let mut vars = json!({ "recover_force": args.force });
    if let Some(through) = &args.through {
        vars["recover_through"] = Value::from(through.as_str());
    }
    // What goes on was looked at and agreed to when it began.
    if invocation.resumed.is_none() {
        let exit = look("recover-look.yaml", &args.cluster, &vars, &args.args, invocation)?;
        if exit != Exit::Success || args.args.run.check {
            return Ok(exit);
        }
        let question =
            format!("Bring {} back like that? No data is deleted: what is replaced is set aside.", args.cluster);
        confirm_name(&question, &args.cluster, args.yes, invocation)?;
    }
    play("recover.yaml", &args.cluster, &vars, &args.args, invocation)
}
