//! `etcdrun drain HYPERVISOR`: every member on it goes elsewhere, one after the other; `undrain`: they come back.

use std::collections::BTreeMap;

use clap::Args;

use super::{
    CliError, Exit, Invocation,
    member::{Shared, Site, carry_out, facts, play},
    terminal::confirm,
};
use crate::{
    inventory::Cluster,
    membership::{Candidate, Condition, Departure, Request, Verb, departures},
    source::Node,
    state::{Drained, Gone},
};

#[derive(Args, Debug)]
#[command(
    after_help = "Each member is moved as by `etcdrun member move`, a dead one is built anew; to the hypervisor with the fewest members of its\ncluster, by zone and then by hypervisor, among those of the cluster's `placement`. Until `etcdrun undrain`, none goes to this one.\n\nExamples:\n  etcdrun drain hv3\n  etcdrun drain hv3 --reboot      # the guests stay: they stop, the hypervisor boots, they start"
)]
pub struct DrainArgs {
    /// The hypervisor
    hypervisor: String,

    /// Move nobody: stop the members there safely, boot the hypervisor, and bring them back
    #[arg(long)]
    reboot: bool,

    #[command(flatten)]
    shared: Shared,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  etcdrun undrain hv3             # the members that lived there come back\n  etcdrun undrain hv3 --stay      # they stay where they are"
)]
pub struct UndrainArgs {
    /// The hypervisor
    hypervisor: String,

    /// Leave the members that lived there where they are
    #[arg(long)]
    stay: bool,

    #[command(flatten)]
    shared: Shared,
}

pub fn run(args: &DrainArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let (shared, hypervisor) = (&args.shared, args.hypervisor.as_str());
    if args.reboot {
        return reboot(hypervisor, shared, invocation);
    }
    // What goes on is one of the moves; whatever is left is for another `drain`.
    if invocation.resumed.is_some() {
        return play(Verb::Move, shared, BTreeMap::new(), invocation);
    }
    let site = Site::load(shared, invocation)?;
    facts::hypervisor(&site.inventory, hypervisor)?;
    let state = site.state(shared, invocation);
    let mut drained = Drained::load(&state)?;
    let mut all = Vec::new();
    for cluster in site.inventory.clusters() {
        all.extend(of_cluster(&site, cluster, hypervisor, &drained)?);
    }
    if all.is_empty() {
        invocation.print(&format!("no member lives on {hypervisor}\n"))?;
    } else if !agree(&format!("{hypervisor}: {} to move, one after the other", all.len()), &all, shared, invocation)? {
        return Ok(Exit::Interrupted);
    }
    if shared.run.check {
        return move_all(&all, shared, invocation, |_, _| Ok(()));
    }
    drained.mark(hypervisor);
    drained.keep(&state)?;
    let exit = move_all(&all, shared, invocation, |departure, new| {
        drained.note(hypervisor, Gone { cluster: departure.cluster.clone(), member: new });
        Ok(drained.keep(&state)?)
    })?;
    if exit == Exit::Success {
        say(&format!("{hypervisor} is empty, and gets no member before `etcdrun undrain {hypervisor}`\n"), invocation)?;
    }
    Ok(exit)
}

pub fn undrain(args: &UndrainArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let (shared, hypervisor) = (&args.shared, args.hypervisor.as_str());
    if invocation.resumed.is_some() {
        return play(Verb::Move, shared, BTreeMap::new(), invocation);
    }
    let site = Site::load(shared, invocation)?;
    facts::hypervisor(&site.inventory, hypervisor)?;
    let state = site.state(shared, invocation);
    let mut drained = Drained::load(&state)?;
    let Some(gone) = drained.clear(hypervisor) else {
        invocation.print(&format!("{hypervisor} is not drained\n"))?;
        return Ok(Exit::Success);
    };
    // Who has left its cluster since, or lives there again, has no way to go.
    let lives_elsewhere = |gone: &Gone| {
        let members = facts::members(&site.inventory, &gone.cluster);
        members.iter().any(|member| member.name == gone.member && member.hypervisor.as_deref() != Some(hypervisor))
    };
    let back = gone.into_iter().filter(|gone| !args.stay && lives_elsewhere(gone));
    let back: Vec<Departure> =
        back.map(|gone| Departure { cluster: gone.cluster, member: gone.member, to: hypervisor.to_owned() }).collect();
    let heading = format!("{hypervisor} takes members again, and {} come back, one after the other", back.len());
    if !back.is_empty() && !agree(&heading, &back, shared, invocation)? {
        return Ok(Exit::Interrupted);
    }
    if shared.run.check {
        return Ok(Exit::Success);
    }
    drained.keep(&state)?;
    say(&format!("{hypervisor} takes members again\n"), invocation)?;
    move_all(&back, shared, invocation, |_, _| Ok(()))
}

/// The guests stay where they are, and go down with their hypervisor, once their clusters can spare them.
fn reboot(hypervisor: &str, shared: &Shared, invocation: &Invocation) -> Result<Exit, CliError> {
    if invocation.resumed.is_none() {
        let site = Site::load(shared, invocation)?;
        facts::hypervisor(&site.inventory, hypervisor)?;
        let members =
            site.inventory.clusters().flat_map(|cluster| facts::members(&site.inventory, cluster.name.as_str()));
        let members: Vec<String> =
            members.filter(|it| it.hypervisor.as_deref() == Some(hypervisor)).map(|it| it.name).collect();
        let question = match members.is_empty() {
            true => format!("{hypervisor} boots; no member lives there. Go on? [y/N] "),
            false => format!("{} stop, {hypervisor} boots, and they start again. Go on? [y/N] ", members.join(", ")),
        };
        if !shared.run.check && !shared.yes && !confirm(&question, "--yes goes on without asking")? {
            invocation.print("nothing was done\n")?;
            return Ok(Exit::Interrupted);
        }
    }
    let play = shared.play("hypervisor-reboot.yaml", Some(hypervisor), Vec::new());
    Ok(play.run(play.compile(invocation)?, invocation)?.exit(false))
}

/// For a person.
fn say(text: &str, invocation: &Invocation) -> Result<(), CliError> {
    if invocation.json { Ok(()) } else { invocation.print(text) }
}

/// Shows who goes where, and asks.
fn agree(heading: &str, all: &[Departure], shared: &Shared, invocation: &Invocation) -> Result<bool, CliError> {
    say(&table(heading, all), invocation)?;
    if shared.run.check || shared.yes || confirm("Go on? [y/N] ", "--yes goes on without asking")? {
        return Ok(true);
    }
    invocation.print("nothing was done\n")?;
    Ok(false)
}

/// One after the other, until one does not get there. `moved` hears of each, and what it is called now.
fn move_all(
    all: &[Departure],
    shared: &Shared,
    invocation: &Invocation,
    mut moved: impl FnMut(&Departure, String) -> Result<(), CliError>,
) -> Result<Exit, CliError> {
    for departure in all {
        let (exit, new) = depart(departure, shared, invocation)?;
        if exit != Exit::Success {
            return Ok(exit);
        }
        moved(departure, new)?;
    }
    Ok(Exit::Success)
}

fn of_cluster(site: &Site, cluster: &Cluster, leaving: &str, drained: &Drained) -> Result<Vec<Departure>, CliError> {
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
    Ok(departures(name, &members, leaving, &candidates)?)
}

/// The inventory is read again each time, since the move before has changed it.
fn depart(departure: &Departure, shared: &Shared, invocation: &Invocation) -> Result<(Exit, String), CliError> {
    let mut site = Site::load(shared, invocation)?;
    let situation = site.look(&departure.cluster, Some(&departure.to), shared, invocation)?;
    let verb = match situation.condition(&departure.member) {
        Condition::Alive => Verb::Move,
        _ => Verb::Replace,
    };
    let request = Request {
        verb,
        old: Some(departure.member.clone()),
        new_name: None,
        to: Some(departure.to.clone()),
        ip: None,
        fence_unreachable: false,
        snapshot: !shared.no_snapshot,
        allow_outage: shared.allow_outage,
    };
    carry_out(&site, &request, &situation, shared, false, invocation)
}

fn table(heading: &str, all: &[Departure]) -> String {
    let width = |text: fn(&Departure) -> &str| all.iter().map(|departure| text(departure).len()).max().unwrap_or(0);
    let (member, cluster) = (width(|it| &it.member).max(6), width(|it| &it.cluster).max(7));
    let mut text = format!("{heading}\n");
    text += &format!("  {:member$}  {:cluster$}  TO\n", "MEMBER", "CLUSTER");
    for it in all {
        text += &format!("  {:member$}  {:cluster$}  {}\n", it.member, it.cluster, it.to);
    }
    text
}
