//! `etcdrun undrain HYPERVISOR`: members may be there again, and those that a drain has moved away come back.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    members::{CareArgs, Shared, play},
    moves::{Moves, Pace, agree, count, lives, say, say_what_is_left},
};
use crate::{
    membership::{Departure, Verb, facts},
    state::{Drained, Gone},
};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  etcdrun undrain hv3             # move its former members back\n  etcdrun undrain hv3 --stay      # leave the members where they are"
)]
pub struct UndrainArgs {
    /// The hypervisor
    hypervisor: String,

    /// Leave its former members where they are
    #[arg(long, conflicts_with_all = ["max_clusters", "no_snapshot", "allow_outage"])]
    stay: bool,

    #[command(flatten)]
    pace: Pace,

    #[command(flatten)]
    care: CareArgs,

    #[command(flatten)]
    shared: Shared,
}

pub fn run(args: &UndrainArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let (shared, hypervisor) = (&args.shared, args.hypervisor.as_str());
    if invocation.resumed.is_some() {
        return play(Verb::Move, shared, &[], invocation);
    }
    let site = shared.site(invocation)?;
    facts::hypervisor(&site.inventory, hypervisor)?;
    let mut drained = Drained::load(&site.state)?;
    let Some(gone) = drained.open(hypervisor) else {
        invocation.print(&format!("{hypervisor} is not drained\n"))?;
        return Ok(Exit::Success);
    };
    // Who has left its cluster since, or lives there again, has no way to go.
    let is_elsewhere = |gone: &Gone| lives(&site.inventory, gone, |at| at != hypervisor);
    let back = gone.into_iter().filter(|gone| !args.stay && is_elsewhere(gone));
    let back = back.map(|gone| Departure { cluster: gone.cluster, member: gone.member, to: hypervisor.to_owned() });
    let rounds = args.pace.rounds(back.collect());
    let heading = format!("{hypervisor} accepts members again, and {}", count(&rounds, "to move back"));
    if !rounds.is_empty() && !agree(&heading, &rounds, shared, invocation)? {
        return Ok(Exit::Interrupted);
    }
    let snapshot = !args.care.no_snapshot;
    let mut moves = Moves { emptied: None, drained, snapshot, state: site.state, shared, invocation };
    moves.keep()?;
    if !shared.run.mode.check {
        say(&format!("{hypervisor} accepts members again\n"), invocation)?;
    }
    let exit = moves.all(rounds)?;
    match exit {
        // No member is missing there any more.
        Exit::Success => {
            moves.drained.clear(hypervisor);
            moves.keep()?;
        }
        Exit::Interrupted => {}
        _ if shared.run.mode.check => {}
        _ => say_what_is_left(hypervisor, "undrain", invocation)?,
    }
    Ok(exit)
}
