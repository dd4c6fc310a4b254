//! `etcdrun runs prune`: deletes old runs.

use clap::Args;
use serde_json::json;

use super::either;
use crate::cli::support::{
    CliError, Invocation,
    args::StateArgs,
    record::{KEPT_RUNS, state_of},
};

#[derive(Args, Debug)]
pub struct PruneArgs {
    /// Number of runs to keep
    #[arg(long, value_name = "N", default_value_t = KEPT_RUNS)]
    keep: usize,

    /// Also delete runs that could still be resumed
    #[arg(long)]
    unfinished: bool,

    #[command(flatten)]
    state: StateArgs,
}

pub fn run(args: &PruneArgs, outer: &StateArgs, invocation: &Invocation) -> Result<String, CliError> {
    let removed = state_of(&either(&args.state, outer), invocation).prune(args.keep, args.unfinished)?;
    let ids: Vec<_> = removed.iter().map(ToString::to_string).collect();
    Ok(match invocation.json {
        true => format!("{}\n", json!({ "removed": ids })),
        false => format!("{} deleted\n", ids.len()),
    })
}
