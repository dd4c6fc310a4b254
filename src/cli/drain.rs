//! `etcdrun drain HYPERVISOR`: every member on it goes elsewhere, one after the other.

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
};

#[derive(Args, Debug)]
#[command(
    after_help = "Each member is moved as by `etcdrun member move`, a dead one is built anew; to the hypervisor with the fewest members of its\ncluster, by zone and then by hypervisor, among those of the cluster's `placement`.\n\nExamples:\n  etcdrun drain hv3\n  etcdrun drain hv3 --yes"
)]
pub struct DrainArgs {
    /// The hypervisor
    hypervisor: String,

    #[command(flatten)]
    shared: Shared,
}

pub fn run(args: &DrainArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let shared = &args.shared;
    // What goes on is one of the moves; whatever is left is for another `drain`.
    if invocation.resumed.is_some() {
        return play(Verb::Move, shared, std::collections::BTreeMap::new(), invocation);
    }
    let site = Site::load(shared, invocation)?;
    facts::hypervisor(&site.inventory, &args.hypervisor)?;
    let mut all = Vec::new();
    for cluster in site.inventory.clusters() {
        all.extend(of_cluster(&site, cluster, &args.hypervisor)?);
    }
    if all.is_empty() {
        invocation.print(&format!("no member lives on {}\n", args.hypervisor))?;
        return Ok(Exit::Success);
    }
    if !invocation.json {
        invocation.print(&table(&args.hypervisor, &all))?;
    }
    if !shared.run.check && !shared.yes && !confirm("Go on? [y/N] ", "--yes goes on without asking")? {
        invocation.print("nothing was done\n")?;
        return Ok(Exit::Interrupted);
    }
    for departure in &all {
        let exit = depart(departure, shared, invocation)?;
        if exit != Exit::Success {
            return Ok(exit);
        }
    }
    Ok(Exit::Success)
}

fn of_cluster(site: &Site, cluster: &Cluster, leaving: &str) -> Result<Vec<Departure>, CliError> {
    let name = cluster.name.as_str();
    let members = facts::members(&site.inventory, name).into_iter();
    let members: Vec<(String, String)> = members.filter_map(|member| Some((member.name, member.hypervisor?))).collect();
    let chosen = cluster.sections.get("placement").and_then(Node::as_map).and_then(|map| map.get("hypervisors"));
    let chosen: Option<Vec<&str>> = chosen.map(|node| match node.as_seq() {
        Some(list) => list.iter().filter_map(Node::as_str).collect(),
        None => node.as_str().into_iter().collect(),
    });
    let is_candidate = |host: &str| chosen.as_ref().is_none_or(|chosen| chosen.contains(&host));
    let hypervisors = site.inventory.hypervisors().filter(|host| is_candidate(host.name.as_str()));
    let candidates: Vec<Candidate> =
        hypervisors.map(|host| Candidate { name: host.name.to_string(), zone: host.zone.clone() }).collect();
    Ok(departures(name, &members, leaving, &candidates)?)
}

/// The inventory is read again each time, since the move before has changed it.
fn depart(departure: &Departure, shared: &Shared, invocation: &Invocation) -> Result<Exit, CliError> {
    let mut site = Site::load(shared, invocation)?;
    let situation = site.look(&departure.cluster, shared, invocation)?;
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

fn table(leaving: &str, all: &[Departure]) -> String {
    let width = |text: fn(&Departure) -> &str| all.iter().map(|departure| text(departure).len()).max().unwrap_or(0);
    let (member, cluster) = (width(|it| &it.member).max(6), width(|it| &it.cluster).max(7));
    let mut text = format!("{leaving}: {} to move, one after the other\n", all.len());
    text += &format!("  {:member$}  {:cluster$}  TO\n", "MEMBER", "CLUSTER");
    for it in all {
        text += &format!("  {:member$}  {:cluster$}  {}\n", it.member, it.cluster, it.to);
    }
    text
}
