//! `etcdrun drain HYPERVISOR`: every member on it goes elsewhere, those of different clusters at the same time.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    members::{CareArgs, Shared, play},
    moves::{Moves, Pace, agree, count, lives, say, say_what_is_left},
    terminal::confirm,
};
use crate::{
    inventory::{Host, Inventory},
    membership::{Verb, departures, facts},
    state::Drained,
};

#[derive(Args, Debug)]
#[command(
    after_help = "Each member is moved as by `etcdrun member move`; a failed one is rebuilt. It goes to the zone, and then the hypervisor, with the fewest members of its cluster, among those of the cluster's `placement`. Until `etcdrun undrain`, no member is placed on this hypervisor.\n\nMembers move in rounds, with at most one member of each cluster per round. If the move of a cluster's member fails, that cluster is left out of the following rounds, and the others continue.\n\nExamples:\n  etcdrun drain hv3\n  etcdrun drain hv3 --reboot      # move no guest: stop them, reboot the hypervisor, start them"
)]
pub struct DrainArgs {
    /// The hypervisor
    hypervisor: String,

    /// Move nothing: stop the guests safely, reboot the hypervisor, and start them again
    #[arg(long, conflicts_with_all = ["max_clusters", "no_snapshot"])]
    reboot: bool,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    care: CareArgs,

    #[command(flatten)]
    shared: Shared,
}

pub fn run(args: &DrainArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let (shared, hypervisor) = (&args.shared, args.hypervisor.as_str());
    if args.reboot {
        return reboot(hypervisor, shared, invocation);
    }
    // What is resumed is one of the rounds; whatever is left is for another `drain`.
    if invocation.resumed.is_some() {
        let exit = play(Verb::Move, shared, &[], invocation)?;
        if exit == Exit::Success {
            say(
                &format!("that round is done; to move the remaining members, run `etcdrun drain {hypervisor}`\n"),
                invocation,
            )?;
        }
        return Ok(exit);
    }
    let site = shared.site(invocation)?;
    facts::hypervisor(&site.inventory, hypervisor)?;
    let mut drained = Drained::load(&site.state)?;
    let rounds = args.pace.rounds(departures(&site.inventory, hypervisor, |host| drained.has(host))?);
    if rounds.is_empty() {
        invocation.print(&format!("no member runs on {hypervisor}\n"))?;
    } else if !agree(&format!("{hypervisor}: {}", count(&rounds, "to move")), &rounds, shared, invocation)? {
        return Ok(Exit::Interrupted);
    }
    let stay = guests(&site.inventory, hypervisor, |host| host.cluster().is_none());
    drained.mark(hypervisor);
    drained.forget(hypervisor, |gone| !lives(&site.inventory, gone, |_| true));
    let snapshot = !args.care.no_snapshot;
    let mut moves = Moves { emptied: Some(hypervisor), drained, snapshot, state: site.state, shared, invocation };
    moves.keep()?;
    let exit = moves.all(rounds)?;
    if shared.run.mode.check {
        return Ok(exit);
    }
    match exit {
        Exit::Success => {
            let what = match stay.is_empty() {
                true => "is empty",
                false => "has no members",
            };
            say(&format!("{hypervisor} {what}, and gets none until `etcdrun undrain {hypervisor}`\n"), invocation)?;
            if !stay.is_empty() {
                let text = format!(
                    "{} stay there: only members move; `etcdrun drain {hypervisor} --reboot` stops and starts them\n",
                    stay.join(", ")
                );
                say(&text, invocation)?;
            }
        }
        Exit::Interrupted => {}
        _ => say_what_is_left(hypervisor, "drain", invocation)?,
    }
    Ok(exit)
}

/// The guests on a hypervisor that are meant, by name.
fn guests(inventory: &Inventory, hypervisor: &str, is_meant: impl Fn(&Host) -> bool) -> Vec<String> {
    let is_there = |host: &&Host| host.hypervisor.as_ref().is_some_and(|at| at.as_str() == hypervisor);
    inventory.hosts().filter(is_there).filter(|host| is_meant(host)).map(|host| host.name.to_string()).collect()
}

/// The guests stay where they are, and go down with their hypervisor, once their clusters can spare them.
fn reboot(hypervisor: &str, shared: &Shared, invocation: &Invocation) -> Result<Exit, CliError> {
    if invocation.resumed.is_none() {
        let site = shared.site(invocation)?;
        facts::hypervisor(&site.inventory, hypervisor)?;
        let guests = guests(&site.inventory, hypervisor, |host| host.is_guest() || host.cluster().is_some());
        let question = match guests.is_empty() {
            true => format!("Reboot {hypervisor}? No guest of the inventory runs there. [y/N] "),
            false => format!("Stop {}, reboot {hypervisor}, and start them again? [y/N] ", guests.join(", ")),
        };
        if !shared.run.mode.check && !shared.prompt.yes && !confirm(&question, "--yes skips the prompt")? {
            invocation.print("nothing was changed\n")?;
            return Ok(Exit::Interrupted);
        }
    }
    let play = shared.play("hypervisor-reboot.yaml", Some(hypervisor), Vec::new());
    Ok(play.run(play.compile(invocation)?, invocation)?.exit(false))
}
