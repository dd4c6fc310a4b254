//! Where the members of a cluster live, and what that means for it: found before anything is created.

use std::collections::BTreeMap;

use super::{Network, NetworkMode};
use crate::{
    entry::Interface,
    model::Span,
    source::{Diagnostic, Diagnostics, Kind, Node, from_node},
    types::{Cluster, Host, Inventory},
};

/// Reports layouts that cannot work, or do not survive what a cluster is there to survive.
pub(in super::super) fn check(inventory: &Inventory, diagnostics: &mut Diagnostics) {
    for cluster in inventory.clusters() {
        let members: Vec<&Host> = cluster.members.iter().map(|id| inventory.host_by_id(*id)).collect();
        // Machines that something else has made are where they are.
        if !members.iter().any(|member| member.is_guest()) {
            continue;
        }
        check_quorum(cluster, &members, diagnostics);
        check_zones(cluster, &members, diagnostics);
        check_reach(inventory, &members, diagnostics);
    }
    for guest in inventory.hosts().filter(|host| host.is_guest()) {
        check_addresses(inventory, guest, diagnostics);
        check_way(guest, diagnostics);
    }
}

fn hypervisor_of(member: &Host) -> Option<&str> {
    member.hypervisor.as_ref().map(|name| name.as_str())
}

fn by<'h>(members: &[&'h Host], place: impl Fn(&'h Host) -> Option<&'h str>) -> BTreeMap<&'h str, Vec<&'h Host>> {
    let mut places: BTreeMap<&str, Vec<&Host>> = BTreeMap::new();
    for member in members {
        if let Some(name) = place(member) {
            places.entry(name).or_default().push(member);
        }
    }
    places
}

/// How many of `all` are left without `gone`, if that is no majority.
fn minority_without(gone: usize, all: usize) -> Option<usize> {
    let left = all - gone;
    (left < majority(all)).then_some(left)
}

fn majority(all: usize) -> usize {
    all / 2 + 1
}

fn check_quorum(cluster: &Cluster, members: &[&Host], diagnostics: &mut Diagnostics) {
    if matches!(cluster.sections.get("allow_colocation").map(|node| &node.kind), Some(Kind::Bool(true))) {
        return;
    }
    for (hypervisor, here) in by(members, hypervisor_of) {
        // Where each has a hypervisor of its own, nothing can be placed better.
        let [first, .., last] = here.as_slice() else { continue };
        let Some(left) = minority_without(here.len(), members.len()) else { continue };
        let names: Vec<&str> = here.iter().map(|member| member.name.as_str()).collect();
        let message = format!(
            "the loss of `{hypervisor}` would stop {} ({} of the {} members of `{}`): {left} would be left, and a majority is {}",
            names.join(", "),
            here.len(),
            members.len(),
            cluster.name,
            majority(members.len())
        );
        let help = "spread the members over more hypervisors, or set `allow_colocation: true` in the cluster";
        diagnostics.push(
            Diagnostic::error(last.span, message)
                .related(first.span, format!("`{}` is there too", first.name))
                .help(help),
        );
    }
}

/// Zones are only warned about: not every fleet has three of them.
fn check_zones(cluster: &Cluster, members: &[&Host], diagnostics: &mut Diagnostics) {
    let zones = by(members, |member| member.zone.as_deref());
    if zones.len() < 2 || hypervisors_of(members) < 3 {
        return;
    }
    for (zone, here) in zones.iter().filter(|(_, here)| here.len() > 1) {
        let Some(left) = minority_without(here.len(), members.len()) else { continue };
        let message = format!(
            "the zone `{zone}` has {} of the {} members of `{}`; without it {left} are left, and a majority is {}",
            here.len(),
            members.len(),
            cluster.name,
            majority(members.len())
        );
        let span = here.last().map_or_else(|| cluster.span, |member| Some(member.span));
        diagnostics.push(Diagnostic::warning(span, message));
    }
}

fn hypervisors_of(members: &[&Host]) -> usize {
    by(members, hypervisor_of).len()
}

fn interfaces_of(member: &Host) -> Vec<(Interface, Span)> {
    let nodes = member.sections.get("interfaces").and_then(Node::as_seq).unwrap_or_default();
    nodes.iter().filter_map(|node| Some((from_node::<Interface>(node).ok()?, node.span))).collect()
}

/// A network that the inventory describes on the member's hypervisor.
fn described(inventory: &Inventory, member: &Host, name: &str) -> Option<Network> {
    let hypervisor = inventory.host(hypervisor_of(member)?)?;
    let node = hypervisor.sections.get("networks")?.as_map()?.get(name)?;
    from_node::<Option<Network>>(node).ok().map(Option::unwrap_or_default)
}

fn check_addresses(inventory: &Inventory, guest: &Host, diagnostics: &mut Diagnostics) {
    for (interface, span) in interfaces_of(guest) {
        let Some(network) = interface.network.as_ref().and_then(|name| described(inventory, guest, name)) else {
            continue;
        };
        let (Some(ip), Some(own)) = (&interface.ip, &network.address) else { continue };
        let (ip, own) = (ip.0.0, own.0.0);
        if !own.contains(&ip.addr()) {
            let message = format!("{} is not in the network {} of its hypervisor", ip.addr(), own.trunc());
            diagnostics.error(span, message);
        } else if ip.addr() == own.addr() {
            diagnostics.error(span, format!("{} is the hypervisor's own address in this network", ip.addr()));
        }
    }
}

/// Peers talk to each other by the first interface.
fn check_reach(inventory: &Inventory, members: &[&Host], diagnostics: &mut Diagnostics) {
    let shut = members.iter().filter_map(|member| {
        let (interface, span) = interfaces_of(member).into_iter().next()?;
        let name = interface.network?;
        let mode = described(inventory, member, &name)?.mode.unwrap_or(NetworkMode::Nat);
        let is_shut = matches!(mode, NetworkMode::Nat | NetworkMode::Isolated);
        is_shut.then_some((*member, name, span))
    });
    let shut: Vec<_> = shut.collect();
    let Some((first, name, span)) = shut.first() else { return };
    let elsewhere = |member: &&&Host| {
        let theirs = hypervisor_of(member);
        theirs.is_some() && theirs != hypervisor_of(first)
    };
    if let Some(other) = members.iter().find(elsewhere) {
        let message = format!(
            "`{}` and `{}` could not reach each other: the network `{name}` ends at its hypervisor, and they are on two",
            first.name, other.name
        );
        let help =
            "give the members a `bridge` or `macvtap` as their first interface, or a network with `mode: bridge`";
        diagnostics.push(Diagnostic::error(*span, message).related(other.span, "the other one").help(help));
    }
}

/// macvtap hands no frame to the hypervisor that it is on.
fn check_way(member: &Host, diagnostics: &mut Diagnostics) {
    let Some(hypervisor) = hypervisor_of(member) else { return };
    if !member.endpoint.jump.iter().any(|hop| hop == hypervisor) {
        return;
    }
    let used = interfaces_of(member)
        .into_iter()
        .find(|(interface, _)| interface.ip.as_ref().is_some_and(|ip| ip.0.0.addr().to_string() == member.address()));
    if let Some((Interface { macvtap: Some(device), .. }, span)) = used {
        let message = format!(
            "`{}` cannot be reached through `{hypervisor}`: a guest on macvtap (`{device}`) and its own hypervisor cannot reach each other",
            member.name
        );
        let help = "use `ssh_via: direct`, or `ssh: { jump: ... }` with another host";
        diagnostics.push(Diagnostic::error(span, message).help(help));
    }
}
