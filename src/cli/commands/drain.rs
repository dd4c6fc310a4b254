//! `etcdrun drain HYPERVISOR`: every member on it goes elsewhere, those of different clusters at the same time.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    members::{CareArgs, Shared, facts, play},
    moves::{Moves, Pace, agree, count, lives, say, say_what_is_left},
    site::Site,
    terminal::confirm,
};
use crate::{
    inventory::Cluster,
    membership::{Candidate, Departure, Load, Verb, departures},
    source::Node,
    state::Drained,
};

#[derive(Args, Debug)]
#[command(
    after_help = "Each member is moved as by `etcdrun member move`; a failed one is rebuilt. It goes to the zone, and then the hypervisor, with the fewest members of its cluster, among those of the cluster's `placement`. Until `etcdrun undrain`, no member is placed on this hypervisor.\n\nMembers move in rounds, with at most one member of each cluster per round. If the move of a cluster's member fails, that cluster is left out of the following rounds, and the others continue.\n\nExamples:\n  etcdrun drain hv3\n  etcdrun drain hv3 --reboot      # move no guest: stop them, reboot the hypervisor, start them"
)]
pub struct DrainArgs {
    /// The hypervisor
    hypervisor: String,

    /// Do not move members: stop them safely, reboot the hypervisor, and start them again
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
    // What goes on is one of the rounds; whatever is left is for another `drain`.
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
    let rounds = args.pace.rounds(leaving(&site, hypervisor, &drained)?);
    if rounds.is_empty() {
        invocation.print(&format!("no member runs on {hypervisor}\n"))?;
    } else if !agree(&format!("{hypervisor}: {}", count(&rounds, "to move")), &rounds, shared, invocation)? {
        return Ok(Exit::Interrupted);
    }
    drained.mark(hypervisor);
    drained.forget(hypervisor, |gone| !lives(&site.inventory, gone, |_| true));
    let snapshot = !args.care.no_snapshot;
    let mut moves = Moves { emptied: Some(hypervisor), drained, snapshot, state: site.state, shared, invocation };
    moves.keep()?;
    let exit = moves.all(rounds)?;
    if shared.run.check {
        return Ok(exit);
    }
    match exit {
        Exit::Success => {
            let text = format!("{hypervisor} is empty, and gets no members until `etcdrun undrain {hypervisor}`\n");
            say(&text, invocation)?;
        }
        Exit::Interrupted => {}
        _ => say_what_is_left(hypervisor, "drain", invocation)?,
    }
    Ok(exit)
}

/// The guests stay where they are, and go down with their hypervisor, once their clusters can spare them.
fn reboot(hypervisor: &str, shared: &Shared, invocation: &Invocation) -> Result<Exit, CliError> {
    if invocation.resumed.is_none() {
        let site = shared.site(invocation)?;
        facts::hypervisor(&site.inventory, hypervisor)?;
        let members =
            site.inventory.clusters().flat_map(|cluster| facts::members(&site.inventory, cluster.name.as_str()));
        let members: Vec<String> =
            members.filter(|it| it.hypervisor.as_deref() == Some(hypervisor)).map(|it| it.name).collect();
        let question = match members.is_empty() {
            true => format!("Reboot {hypervisor}? No member runs there. [y/N] "),
            false => format!("Stop {}, reboot {hypervisor}, and start them again? [y/N] ", members.join(", ")),
        };
        if !shared.run.check && !shared.yes && !confirm(&question, "--yes skips the prompt")? {
            invocation.print("nothing was changed\n")?;
            return Ok(Exit::Interrupted);
        }
    }
    let play = shared.play("hypervisor-reboot.yaml", Some(hypervisor), Vec::new());
    Ok(play.run(play.compile(invocation)?, invocation)?.exit(false))
}

/// All that live on a hypervisor, and where they go.
fn leaving(site: &Site, hypervisor: &str, drained: &Drained) -> Result<Vec<Departure>, CliError> {
    let mut load = Load::new();
    for cluster in site.inventory.clusters() {
        for at in facts::members(&site.inventory, cluster.name.as_str()).into_iter().filter_map(|it| it.hypervisor) {
            *load.entry(at).or_default() += 1;
        }
    }
    let mut all = Vec::new();
    for cluster in site.inventory.clusters() {
        all.extend(of_cluster(site, cluster, hypervisor, drained, &mut load)?);
    }
    Ok(all)
}

fn of_cluster(
    site: &Site,
    cluster: &Cluster,
    leaving: &str,
    drained: &Drained,
    load: &mut Load,
) -> Result<Vec<Departure>, CliError> {
    let name = cluster.name.as_str();
    let members = facts::members(&site.inventory, name).into_iter();
    let members: Vec<(String, String)> = members.filter_map(|member| Some((member.name, member.hypervisor?))).collect();
    let chosen = cluster.sections.get("placement").and_then(Node::as_map).and_then(|map| map.get("hypervisors"));
    let chosen: Option<Vec<&str>> = chosen.map(|node| match node.as_seq() {
        Some(list) => list.iter().filter_map(Node::as_str).collect(),
        None => node.as_str().into_iter().collect(),
    });
    let is_candidate = |host: &str| chosen.as_ref().is_none_or(|chosen| chosen.contains(&host)) && !drained.has(host);
    let hypervisors = site.inventory.hypervisors().filter(|host| is_candidate(host.name.as_str()));
    let candidates: Vec<Candidate> =
        hypervisors.map(|host| Candidate { name: host.name.to_string(), zone: host.zone.clone() }).collect();
    Ok(departures(name, &members, leaving, &candidates, load)?)
}
