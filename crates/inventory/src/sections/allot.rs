//! Gives members what their cluster has for all of them: a hypervisor by `placement`, an address by `address_pool`.

use std::{
    collections::{BTreeMap, HashSet},
    net::IpAddr,
    sync::Arc,
};

use schemars::JsonSchema;
use serde::Deserialize;

use crate::{
    draft::{Draft, DraftKind},
    entry::{Cidr, Interface, Ip, OneOrMany, Parsed},
    model::Span,
    source::{Diagnostic, Diagnostics, Key, Kind, Map, Node, from_node},
};

/// Addresses for members that name no interfaces, in the order of the members.
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

/// Placement of members without a hypervisor: the zone, then the hypervisor, with the fewest members of their cluster.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(in super::super) struct Placement {
    /// The hypervisors to choose from; default: all.
    hypervisors: Option<OneOrMany>,
}

/// Fills in what members leave to their clusters, before anything else looks at them.
pub(in super::super) fn allot(draft: &mut Draft, diagnostics: &mut Diagnostics) {
    let clusters: Vec<Arc<str>> = draft.clusters.keys().cloned().collect();
    let mut taken = addresses(draft);
    for cluster in clusters {
        place(draft, &cluster, diagnostics);
        address(draft, &cluster, &mut taken, diagnostics);
    }
}

fn section<T: serde::de::DeserializeOwned>(draft: &Draft, cluster: &str, name: &str) -> Option<(T, Span)> {
    let node = draft.clusters.get(cluster)?.sections.get(name)?;
    // What is wrong with its shape was reported when the file was read.
    from_node(node).ok().map(|section| (section, node.span))
}

fn members<'d>(draft: &'d Draft, cluster: &str) -> impl Iterator<Item = &'d Arc<str>> {
    let is_member = move |kind: &DraftKind| matches!(kind, DraftKind::Member(of) if **of == *cluster);
    draft.hosts.iter().filter(move |(_, host)| is_member(&host.kind)).map(|(name, _)| name)
}

fn place(draft: &mut Draft, cluster: &str, diagnostics: &mut Diagnostics) {
    let Some((placement, span)) = section::<Placement>(draft, cluster, "placement") else { return };
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
    let names: Vec<Arc<str>> = members(draft, cluster).cloned().collect();
    let hypervisor =
        |draft: &Draft, name: &str| draft.hosts[name].fields.get("hypervisor").and_then(Node::as_str).map(Arc::from);
    for placed in names.iter().filter_map(|name| hypervisor(draft, name)) {
        *in_zone.entry(zones.get(&placed).cloned().unwrap_or_default()).or_default() += 1;
        *on_host.entry(placed).or_default() += 1;
    }
    for name in &names {
        if hypervisor(draft, name).is_some() {
            continue;
        }
        let fewest = choice.iter().min_by_key(|host| {
            let zone = in_zone.get(&zones[*host]).copied().unwrap_or(0);
            (zone, on_host.get(*host).copied().unwrap_or(0))
        });
        let Some(best) = fewest.cloned() else {
            diagnostics.error(span, "there is no hypervisor to place members on");
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

fn address(draft: &mut Draft, cluster: &str, taken: &mut HashSet<IpAddr>, diagnostics: &mut Diagnostics) {
    let Some((pool, span)) = section::<AddressPool>(draft, cluster, "address_pool") else { return };
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
    let names: Vec<Arc<str>> = members(draft, cluster).cloned().collect();
    let mut next = Some(first.addr());
    for name in names {
        if draft.hosts[&*name].fields.contains_key("interfaces") {
            continue;
        }
        while let Some(ip) = next.filter(|ip| taken.contains(ip)) {
            next = following(ip, last);
        }
        let Some(ip) = next else {
            diagnostics.error(span, format!("the address pool of `{cluster}` has no address left for `{name}`"));
            return;
        };
        taken.insert(ip);
        let interface = interface(&pool, span, &format!("{ip}/{}", first.prefix_len()));
        draft.hosts[&*name].fields.insert("interfaces".into(), Node::new(span, Kind::Seq(vec![interface])));
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
