//! Gives hosts what their cluster or group has for all of them: a hypervisor by `placement`, an address by `address_pool`.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    draft::{Draft, DraftKind, HostDraft},
    entry::{Cidr, Interface, Ip, OneOrMany, Parsed},
    hierarchy::Levels,
    model::Span,
    source::{Diagnostic, Diagnostics, Key, Kind, Map, Node, Vars, from_node},
};

/// Addresses for hosts that name no interfaces, in the order of the hosts.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct AddressPool {
    /// A libvirt network.
    network: Option<String>,
    /// A bridge of the hypervisors.
    bridge: Option<String>,
    /// An interface of the hypervisors to attach to directly.
    macvtap: Option<String>,
    /// The first address, with its prefix length.
    first: Option<Parsed<Cidr>>,
    /// The last address.
    last: Option<Parsed<Ip>>,
    gateway: Option<Parsed<Ip>>,
    dns: Vec<Parsed<Ip>>,
}

/// Placement of hosts without a hypervisor: the zone, then the hypervisor, with the fewest hosts of their cluster or group.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Placement {
    /// The hypervisors to choose from; default: all.
    hypervisors: Option<OneOrMany>,
}

/// A cluster, or a group of other hosts, that has something for its hosts.
struct Owner {
    name: Arc<str>,
    placement: Option<(Placement, Span)>,
    pool: Option<(AddressPool, Span)>,
    hosts: Vec<Arc<str>>,
}

/// Fills in what hosts leave to their clusters and groups, before anything else looks at them.
pub(in super::super) fn allot(draft: &mut Draft, levels: &Levels, diagnostics: &mut Diagnostics) {
    let mut taken = addresses(draft);
    for owner in owners(draft, levels) {
        if let Some((placement, span)) = &owner.placement {
            place(draft, &owner, placement, *span, diagnostics);
        }
        if let Some((pool, span)) = &owner.pool {
            address(draft, &owner, pool, *span, &mut taken, diagnostics);
        }
    }
}

fn owners(draft: &Draft, levels: &Levels) -> Vec<Owner> {
    let owner = |name: &Arc<str>, sections: &Vars| Owner {
        name: name.clone(),
        placement: section(sections, "placement"),
        pool: section(sections, "address_pool"),
        hosts: Vec::new(),
    };
    let has_some = |owner: &Owner| owner.placement.is_some() || owner.pool.is_some();
    let clusters = draft.clusters.iter().map(|(name, cluster)| owner(name, &cluster.sections)).filter(has_some);
    let clusters = clusters.map(|owner| {
        let is_member = |kind: &DraftKind| matches!(kind, DraftKind::Member(of) if *of == owner.name);
        let hosts = draft.hosts.iter().filter(|(_, host)| is_member(&host.kind)).map(|(name, _)| name.clone());
        Owner { hosts: hosts.collect(), ..owner }
    });
    let groups = draft.groups.iter().map(|(name, group)| owner(name, &group.sections)).filter(has_some);
    let groups = groups.map(|owner| {
        let members = levels.get(&owner.name).map_or(&[][..], |level| &level.members);
        let hosts = members.iter().filter_map(|id| draft.hosts.get_index(id.index()));
        let hosts = hosts.filter(|(_, host)| can_be_guest(host)).map(|(name, _)| name.clone());
        Owner { hosts: hosts.collect(), ..owner }
    });
    clusters.chain(groups).collect()
}

/// A host that says where it is, and nothing of a guest, is an existing one.
fn can_be_guest(host: &HostDraft) -> bool {
    let has = |field: &str| host.fields.contains_key(field);
    let says = |name: &str| host.vars.contains_key(name) || host.file_vars.contains_key(name);
    let is_somewhere = has("address") || has("port") || ["ansible_host", "ansible_port"].into_iter().any(says);
    host.kind == DraftKind::Plain && (!is_somewhere || ["hypervisor", "guest", "interfaces"].into_iter().any(has))
}

fn section<T: serde::de::DeserializeOwned>(sections: &Vars, name: &str) -> Option<(T, Span)> {
    let node = sections.get(name)?;
    // What is wrong with its shape was reported when the file was read.
    from_node(node).ok().map(|section| (section, node.span))
}

fn place(draft: &mut Draft, owner: &Owner, placement: &Placement, span: Span, diagnostics: &mut Diagnostics) {
    let all = draft.hosts.iter().filter(|(_, host)| host.kind == DraftKind::Hypervisor).map(|(name, _)| name.clone());
    let all: Vec<Arc<str>> = all.collect();
    let choice: Vec<Arc<str>> = match &placement.hypervisors {
        None => all,
        Some(names) => names.0.iter().map(|name| name.as_str().into()).collect(),
    };
    if let Some(unknown) =
        choice.iter().find(|name| draft.hosts.get(&***name).is_none_or(|host| host.kind != DraftKind::Hypervisor))
    {
        diagnostics.error(span, format!("there is no hypervisor `{unknown}`"));
        return;
    }
    let zone = |name: &str| {
        let host = draft.hosts.get(name);
        host.and_then(|host| host.fields.get("zone")?.as_str()).unwrap_or_default().to_owned()
    };
    let zones: BTreeMap<Arc<str>, String> = choice.iter().map(|name| (name.clone(), zone(name))).collect();
    let mut in_zone: BTreeMap<String, usize> = BTreeMap::new();
    let mut on_host: BTreeMap<Arc<str>, usize> = BTreeMap::new();
    let hypervisor =
        |draft: &Draft, name: &str| draft.hosts[name].fields.get("hypervisor").and_then(Node::as_str).map(Arc::from);
    for placed in owner.hosts.iter().filter_map(|name| hypervisor(draft, name)) {
        *in_zone.entry(zones.get(&placed).cloned().unwrap_or_default()).or_default() += 1;
        *on_host.entry(placed).or_default() += 1;
    }
    for name in &owner.hosts {
        if hypervisor(draft, name).is_some() {
            continue;
        }
        let fewest = choice.iter().min_by_key(|host| {
            let zone = in_zone.get(&zones[*host]).copied().unwrap_or(0);
            (zone, on_host.get(*host).copied().unwrap_or(0))
        });
        let Some(best) = fewest.cloned() else {
            diagnostics.error(span, format!("there is no hypervisor to place the hosts of `{}` on", owner.name));
            return;
        };
        *in_zone.entry(zones[&best].clone()).or_default() += 1;
        *on_host.entry(best.clone()).or_default() += 1;
        let host = &mut draft.hosts[&**name];
        host.fields.insert("hypervisor".into(), Node::string(span, best));
    }
}

/// Every address that is written.
fn addresses(draft: &Draft) -> HashSet<IpAddr> {
    let interfaces = draft.hosts.values().filter_map(|host| host.fields.get("interfaces")?.as_seq()).flatten();
    let written = interfaces.filter_map(|node| from_node::<Interface>(node).ok()?.ip.map(|ip| ip.0.0.addr()));
    written.collect()
}

fn address(
    draft: &mut Draft,
    owner: &Owner,
    pool: &AddressPool,
    span: Span,
    taken: &mut HashSet<IpAddr>,
    diagnostics: &mut Diagnostics,
) {
    let (Some(first), Some(last)) = (&pool.first, &pool.last) else {
        let help = "for example `first: 192.168.121.10/24` and `last: 192.168.121.50`";
        diagnostics.push(Diagnostic::error(span, "`address_pool` needs `first` and `last`").help(help));
        return;
    };
    let (first, last) = (first.0.0, last.0.0);
    if !first.contains(&last) || last < first.addr() {
        diagnostics.error(span, format!("{last} is not after {} in the network {}", first.addr(), first.trunc()));
        return;
    }
    taken.extend(pool.gateway.as_ref().map(|gateway| gateway.0.0));
    let mut next = Some(first.addr());
    for name in &owner.hosts {
        if draft.hosts[&**name].fields.contains_key("interfaces") {
            continue;
        }
        while let Some(ip) = next.filter(|ip| taken.contains(ip)) {
            next = following(ip, last);
        }
        let Some(ip) = next else {
            diagnostics.error(span, format!("the address pool of `{}` has no address left for `{name}`", owner.name));
            return;
        };
        taken.insert(ip);
        let interface = interface(pool, span, &format!("{ip}/{}", first.prefix_len()));
        draft.hosts[&**name].fields.insert("interfaces".into(), Node::new(span, Kind::Seq(vec![interface])));
    }
}

fn following(ip: IpAddr, last: IpAddr) -> Option<IpAddr> {
    let next = match ip {
        IpAddr::V4(ip) => IpAddr::V4(u32::from(ip).checked_add(1)?.into()),
        IpAddr::V6(ip) => IpAddr::V6(u128::from(ip).checked_add(1)?.into()),
    };
    (next <= last).then_some(next)
}

fn interface(pool: &AddressPool, span: Span, ip: &str) -> Node {
    let text = |text: &str| Node::string(span, text);
    let attachments = [("network", &pool.network), ("bridge", &pool.bridge), ("macvtap", &pool.macvtap)];
    let attachments = attachments.into_iter().filter_map(|(name, value)| Some((name, text(value.as_deref()?))));
    let gateway = pool.gateway.as_ref().map(|gateway| ("gateway", text(&gateway.0.0.to_string())));
    let dns: Vec<Node> = pool.dns.iter().map(|dns| text(&dns.0.0.to_string())).collect();
    let dns = (!dns.is_empty()).then(|| ("dns", Node::new(span, Kind::Seq(dns))));
    let entries = attachments.chain([("ip", text(ip))]).chain(gateway).chain(dns);
    let entries = entries.map(|(name, node)| (Key { name: name.into(), span }, node)).collect();
    Node::new(span, Kind::Map(Map::new(entries)))
}
