//! `etcdrun runs prune`: deletes old runs.

use clap::Args;
use serde_json::json;

use super::either;
use crate::cli::support::{
    CliError, Invocation,
    args::{CheckArgs, StateArgs},
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
    only: CheckArgs,

    #[command(flatten)]
    state: StateArgs,
}

pub fn run(args: &PruneArgs, outer: &StateArgs, invocation: &Invocation) -> Result<String, CliError> {
    let state = state_of(&either(&args.state, outer), invocation);
    let check = args.only.check;
    let old =
        if check { state.prunable(args.keep, args.unfinished) } else { state.prune(args.keep, args.unfinished)? };
    let ids: Vec<_> = old.iter().map(ToString::to_string).collect();
    Ok(match (invocation.json, check) {
        (true, _) => format!("{}\n", json!({ if check { "would_remove" } else { "removed" }: ids })),
        (false, true) => {
            let lines: String = ids.iter().map(|id| format!("{id}\n")).collect();
            format!("{lines}{} would be deleted\n", ids.len())
        }
        (false, false) => format!("{} deleted\n", ids.len()),
    })
}
