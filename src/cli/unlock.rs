//! `etcdrun unlock ID`: breaks the locks of a run that will not come back.

use std::sync::Arc;

use clap::Args;

use super::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, InventoryArgs},
    input::{Input, Opening},
    record::state_folder,
    run::reach,
};
use crate::{
    execute,
    report::MultiProgress,
    state::{RunState, StateError},
};

#[derive(Args, Debug)]
#[command(
    after_help = "What that run has begun is not undone, and not ended. If it still runs, it notices before its next change, and stops."
)]
pub struct UnlockArgs {
    /// The run whose locks are broken; `etcdrun runs` lists those of this inventory
    id: String,

    /// Break them although the run is going on
    #[arg(long)]
    force: bool,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &UnlockArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let mut input = Input::new(&args.inventory.keys, Opening::All, invocation);
    let mut inventory = input.inventory(&args.inventory, invocation);
    let limit = input.limit(&args.inventory, &inventory);
    input.check(invocation)?;
    let id = run_id(args, &input, invocation)?;
    let hosts: Vec<_> = match limit.and_then(|limit| inventory.select(&limit).ok()) {
        Some(hosts) => hosts,
        None => inventory.hosts().map(|host| host.id).collect(),
    };
    let (connector, options) = reach(&mut inventory, &args.connection, MultiProgress::new(), invocation)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let inventory = Arc::new(inventory);
    let answers = runtime.block_on(execute::unlock(inventory, connector, options, &hosts, &id));
    runtime.shutdown_background();
    tell(&answers, &id, invocation)
}

/// The whole name. A run of somebody else is not in our state folder, and has to be named in full.
fn run_id(args: &UnlockArgs, input: &Input, invocation: &Invocation) -> Result<String, CliError> {
    match state_folder(None, &input.inventories, invocation).find(&args.id) {
        Ok(run) if run.state == RunState::Running && !args.force => Err(CliError::usage_with_help(
            format!("run {} is going on right now", run.id),
            Some("end it first, or give --force".to_owned()),
        )),
        Ok(run) => Ok(run.id.to_string()),
        Err(error @ StateError::Ambiguous(..)) => Err(error.into()),
        Err(_) => Ok(args.id.clone()),
    }
}

fn tell(answers: &[execute::Unlocked], id: &str, invocation: &Invocation) -> Result<Exit, CliError> {
    let mut text = String::new();
    for answer in answers {
        match &answer.result {
            Ok(0) => {}
            Ok(count) => text += &format!("{}: {count} broken\n", answer.host),
            Err(error) => text += &format!("{}: not asked: {error}\n", answer.host),
        }
    }
    let broken = answers.iter().any(|answer| matches!(answer.result, Ok(1..)));
    let missed = answers.iter().any(|answer| answer.result.is_err());
    invocation.print(&text)?;
    match (broken, missed) {
        (_, true) => Ok(Exit::Unreachable),
        (true, false) => Ok(Exit::Success),
        (false, false) => Err(CliError::usage_with_help(
            format!("no host has a lock of run {id}"),
            Some("was the name given in full?".to_owned()),
        )),
    }
}
