//! `etcdrun releases add|check`: the releases of etcd that the inventory lists. Connects to no host of it.

mod add;
mod check;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{KeyArgs, KnownArgs},
    runtime::runtime,
};
use crate::releases::{Place, ReleaseError};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  etcdrun releases add 3.6.15\n  etcdrun releases add 3.5.34 3.6.15 --download bin\n  etcdrun releases add 3.6.15 --from https://mirror.example.com/etcd --check\n  etcdrun releases check --online"
)]
pub struct ReleasesCommand {
    #[command(subcommand)]
    verb: Verb,

    /// Inventory file, directory or executable; several are merged [default: inventory/ or inventory.yaml]
    #[arg(short, long, value_name = "PATH", global = true)]
    inventory: Vec<PathBuf>,

    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// Add releases to `etcd_releases` of the inventory, with their published checksums
    Add(add::AddArgs),
    /// Report releases that are out of date, have known problems or a wrong file; read-only
    Check(check::CheckReleasesArgs),
}

pub fn run(args: &ReleasesCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let known = KnownArgs { inventory: args.inventory.clone(), keys: args.keys.clone() };
    match &args.verb {
        Verb::Add(args) => add::run(args, &known, invocation),
        Verb::Check(args) => check::run(args, &known, invocation),
    }
}

/// The place that is named, or the official one.
fn place(from: Option<&str>) -> Result<Place, CliError> {
    from.map_or(Ok(Place::Official), str::parse).map_err(failed)
}

fn failed(error: ReleaseError) -> CliError {
    let help = error.help();
    let told = help.as_ref().map_or_else(|| error.to_string(), |help| format!("{error}; {help}"));
    match error {
        _ if error.is_silence() => CliError::Unreachable(told),
        ReleaseError::Disk { .. }
        | ReleaseError::Differs { .. }
        | ReleaseError::TooLarge { .. }
        | ReleaseError::Http(_) => CliError::Unexpected(told),
        _ => CliError::usage_with_help(error.to_string(), help),
    }
}

/// Runs what talks to a place, until a person has seen enough.
fn wait_for<T>(work: impl Future<Output = Result<T, CliError>>) -> Result<T, CliError> {
    let runtime = runtime()?;
    let ended = runtime.block_on(async {
        let (mut keyboard, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        tokio::select! {
            ended = work => ended,
            _ = keyboard.recv() => Err(CliError::Interrupted),
            _ = terminate.recv() => Err(CliError::Interrupted),
        }
    });
    // A lookup of a name may hang.
    runtime.shutdown_background();
    ended
}
