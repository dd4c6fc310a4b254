//! `etcdrun unlock ID`: breaks the locks of a run that will not come back, or must not go on.

use std::{path::PathBuf, sync::Arc, time::Duration};

use clap::Args;
use etcdrun_base::mutant::{is_off, repair};
use futures_util::future::join_all;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{CheckArgs, ConnectionArgs, InventoryArgs, duration},
    input::{Input, Opening},
    run::reach,
    runtime::runtime,
    site::Site,
};
use crate::{
    execute::{HostLocks, Unlocking},
    inventory::{HostId, Inventory},
    model::{HostName, one_line},
    report::MultiProgress,
    source::disk,
    state::{RunState, StateError, StateFolder},
};

#[derive(Args, Debug)]
#[command(
    after_help = "This does not undo changes of that run. If the run is still active, it stops before its next change; `unlock` waits for its running tasks, or ends them with --end."
)]
pub struct UnlockArgs {
    /// The run whose locks to break; `etcdrun runs` lists those of this inventory
    id: String,

    /// Break them even if the run is active, its state is unknown, or hosts are unreachable
    #[arg(long)]
    force: bool,

    /// Wait up to this long for running tasks on the hosts (`30`, `5m`) [default: 60]
    #[arg(long, value_name = "TIME", value_parser = duration)]
    wait: Option<Duration>,

    /// End running tasks on the hosts after the wait
    #[arg(long)]
    end: bool,

    /// The state directory with the run [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    mode: CheckArgs,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// How long a step may take to end by itself, unless told.
const WAIT: Duration = Duration::from_secs(60);

pub fn run(args: &UnlockArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let mut site = Site::load(&args.inventory.known, args.state_dir.as_deref(), invocation)?;
    let id = run_id(args, &site.state)?;
    let limited = site.select(args.inventory.only.limit.as_deref(), invocation)?;
    let Site { inventory, state, .. } = site;
    let then = (limited.is_none() && !is_off(repair::UNLOCK_ALL))
        .then(|| inventory_then(args, &state, &id, invocation))
        .flatten();
    let is_new = |host: &HostName| inventory.host(host.as_str()).is_none();
    let added = then.map(|then| {
        let hosts: Vec<HostId> = then.hosts().filter(|host| is_new(&host.name)).map(|host| host.id).collect();
        (then, hosts)
    });
    let hosts = limited.unwrap_or_else(|| inventory.hosts().map(|host| host.id).collect());
    let mut places = Vec::new();
    for (mut inventory, hosts) in [(inventory, hosts)].into_iter().chain(added.filter(|(_, hosts)| !hosts.is_empty())) {
        let (connector, options) = reach(&mut inventory, &args.connection, &state, MultiProgress::new(), invocation)?;
        places.push((Unlocking::new(Arc::new(inventory), connector, &options, &id), hosts));
    }
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let result = unlock(args, &places, &id, invocation).await;
        for (unlocking, _) in &places {
            unlocking.close().await;
        }
        result
    });
    runtime.shutdown_background();
    result
}

/// The inventory that a run of ours had, if it can be read: a change of members works on hosts that the file gets at its end.
fn inventory_then(args: &UnlockArgs, state: &StateFolder, id: &str, invocation: &Invocation) -> Option<Inventory> {
    let inputs = state.find(id).ok()?.bundle().ok()?.inputs(state).ok()?;
    disk::replay(inputs, || {
        let mut input = Input::new(&args.inventory.known.keys, Opening::All, invocation);
        let inventory = input.inventory(&args.inventory.known, invocation);
        (!input.diagnostics.has_errors()).then_some(inventory)
    })
}

/// The whole name. A run of somebody else is not in our state folder, and has to be named in full.
fn run_id(args: &UnlockArgs, state: &StateFolder) -> Result<String, CliError> {
    match state.find(&args.id) {
        Ok(run) if run.state == RunState::Running && !args.force => Err(is_going_on(&run.id.to_string())),
        Ok(run) => Ok(run.id.to_string()),
        Err(error @ StateError::Ambiguous(..)) => Err(error.into()),
        Err(_) => Ok(args.id.clone()),
    }
}

fn is_going_on(id: &str) -> CliError {
    CliError::Locked { message: format!("run {id} is active"), help: "end it first, or repeat with --force".to_owned() }
}

async fn unlock(
    args: &UnlockArgs,
    places: &[(Unlocking, Vec<HostId>)],
    id: &str,
    invocation: &Invocation,
) -> Result<Exit, CliError> {
    let of_place = join_all(places.iter().map(|(unlocking, hosts)| unlocking.look(hosts))).await;
    let found: Vec<&HostLocks> = of_place.iter().flatten().collect();
    let missed = describe_missed(&found);
    if !args.force {
        refuse_alive(&found, id)?;
        if !missed.is_empty() {
            let why = "cannot tell whether the run is still active on these hosts, so no lock was broken; use --limit to pick hosts, or --force to skip these";
            invocation.print(&format!("{missed}{why}\n"))?;
            return Ok(Exit::Unreachable);
        }
    }
    if !found.iter().any(|it| it.has_locks()) && missed.is_empty() {
        let help = "a run of another operator needs its full ID".to_owned();
        return Err(CliError::usage_with_help(format!("no host has a lock of the run {id}"), Some(help)));
    }
    if args.mode.check {
        let held = found.iter().filter(|it| it.has_locks()).map(|it| format!("{}: would be broken\n", it.host));
        invocation.print(&(missed.clone() + &held.collect::<String>()))?;
        return Ok(if missed.is_empty() { Exit::Success } else { Exit::Unreachable });
    }
    let wait = args.wait.unwrap_or(WAIT);
    let breaking = places.iter().zip(&of_place).map(|((unlocking, _), found)| unlocking.break_all(found, wait));
    let broken_at = join_all(breaking).await;
    let broken: Vec<&HostLocks> = broken_at.iter().flatten().collect();
    let is_busy = broken.iter().any(|answer| !answer.busy().is_empty());
    let mut text = missed.clone() + &describe_broken(&broken, args.end);
    let mut unended = is_busy && !args.end;
    if is_busy && args.end {
        for ((unlocking, _), broken) in places.iter().zip(&broken_at) {
            for (host, error) in unlocking.end(broken).await {
                text += &format!("{host}: cannot end it: {error}\n");
                unended = true;
            }
        }
    }
    invocation.print(&text)?;
    let failed = broken.iter().any(|answer| answer.result.is_err());
    match (failed || !missed.is_empty(), unended) {
        (true, _) => Ok(Exit::Unreachable),
        (false, true) => Ok(Exit::LockHeld),
        (false, false) => Ok(Exit::Success),
    }
}

/// A run that goes on, or of which nobody here can tell, is not broken by accident.
fn refuse_alive(found: &[&HostLocks], id: &str) -> Result<(), CliError> {
    for owner in found.iter().flat_map(|it| it.owners()) {
        match owner.is_alive() {
            Some(false) => {}
            Some(true) => return Err(is_going_on(id)),
            None => {
                // Any account of that host may have written this.
                let (user, host, pid) = (one_line(&owner.user), one_line(&owner.host), owner.pid);
                let message = format!(
                    "run {id} was started by {user} on {host} (pid {pid}); its state cannot be checked from here"
                );
                let help = "check on that host; if the run is not active, repeat with --force".to_owned();
                return Err(CliError::Locked { message, help });
            }
        }
    }
    Ok(())
}

fn describe_missed(found: &[&HostLocks]) -> String {
    let lines = found.iter().filter_map(|answer| {
        answer.result.as_ref().err().map(|error| format!("{}: unreachable: {error}\n", answer.host))
    });
    lines.collect()
}

fn describe_broken(broken: &[&HostLocks], end: bool) -> String {
    let line = |answer: &&HostLocks| match &answer.result {
        Err(error) => format!("{}: not broken: {error}\n", answer.host),
        Ok(released) if released.busy.is_empty() => format!("{}: {} broken\n", answer.host, released.count),
        Ok(released) => {
            let pids: Vec<_> = released.busy.iter().map(ToString::to_string).collect();
            let then = if end { "it is ended" } else { "it continues to the end of its step; --end ends it" };
            format!("{}: {} broken; process {} still runs: {then}\n", answer.host, released.count, pids.join(", "))
        }
    };
    broken.iter().map(line).collect()
}
