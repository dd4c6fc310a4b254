//! `etcdrun certs renew [CLUSTER...]`: plays `certificates.yaml`, and lists what came of it.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::Common;
use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, LimitArgs, RunArgs, VarsArgs, duration},
    issued::{Holders, holders, listing},
    record::state_folder,
};

/// Longer than any certificate.
const ALWAYS: Duration = Duration::from_secs(36_500 * 86_400);

#[derive(Args, Debug)]
pub struct RenewArgs {
    /// The clusters [default: all]
    #[arg(value_name = "CLUSTER", conflicts_with = "limit")]
    clusters: Vec<String>,

    /// Also renew what expires within this time, like 90d
    #[arg(long, value_name = "TIME", value_parser = duration)]
    early: Option<Duration>,

    /// Renew all certificates
    #[arg(long, conflicts_with = "early")]
    all: bool,

    #[command(flatten)]
    only: LimitArgs,

    #[command(flatten)]
    vars: VarsArgs,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &RenewArgs, common: &Common, invocation: &Invocation) -> Result<Exit, CliError> {
    let early = if args.all { Some(ALWAYS) } else { args.early };
    let early = early.map(|early| json!({ "etcd_early_renewal": format!("{}s", early.as_secs()) }));
    let named = || (!args.clusters.is_empty()).then(|| args.clusters.join(","));
    let limit = args.only.limit.clone().or_else(named);
    let how = (&args.run, &args.connection);
    let play = common.play("certificates.yaml", limit.as_deref(), (&args.vars, early.as_ref()), how);
    let compiled = play.compile(invocation)?;
    let state = match &invocation.resumed {
        Some(resumed) => resumed.state.clone(),
        None => state_folder(common.state_dir.as_deref(), &compiled.input.inventories, invocation),
    };
    let holders = holders(&compiled.inventory, &args.clusters)?;
    let rows = |holders: &[Holders]| -> Result<Vec<_>, CliError> {
        let rows: Result<Vec<_>, _> = holders.iter().map(|holders| holders.rows(state.path())).collect();
        Ok(rows?.into_iter().flatten().collect())
    };
    let before = rows(&holders)?;
    let ended = play.run(compiled, invocation)?;
    if !invocation.json && !args.run.mode.check {
        let mut now = rows(&holders)?;
        for row in now.iter_mut().filter(|row| !before.iter().any(|before| before.is_like(row))) {
            row.note = Some("renewed".to_owned());
        }
        invocation.print(&format!("\n{}", listing(&now, false)))?;
    }
    Ok(ended.exit(false))
}
