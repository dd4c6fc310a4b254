//! The variables that templates know without anyone having set them.
//!
//! They are nodes like all variables, so that what a cluster's sections say can hold templates and
//! encrypted values. What hosts have in common is built once and shared.

use std::{collections::HashMap, sync::Arc};

use super::types::{Cluster, Host, HostKind, Inventory};
use crate::{
    model::{HostName, Span, derived_mac},
    source::{Key, Kind, Map, Node, Vars},
};

/// Who administers a guest, unless the inventory says so.
pub(super) const DEFAULT_ADMIN: &str = "ubuntu";

type Layer = Arc<Vars>;

pub(super) fn fill(inventory: &mut Inventory) {
    let Some(span) = inventory.hosts.first().map(|host| host.span) else { return };
    let groups = one("groups", groups(inventory, span));
    let releases = one("etcd_releases", mapping(span, inventory.etcd_releases.iter().map(|(k, v)| (&**k, v.clone()))));
    let clusters: HashMap<&str, Layer> = inventory
        .clusters()
        .map(|cluster| (cluster.name.as_str(), one("cluster", describe_cluster(inventory, cluster, span))))
        .collect();
    let hypervisors = hypervisors(inventory);

    let builtin: Vec<Vec<Layer>> = inventory
        .hosts
        .iter()
        .map(|host| {
            let cluster = host.cluster().and_then(|name| clusters.get(name.as_str()));
            let of = if host.kind == HostKind::Hypervisor { Some(&host.name) } else { host.hypervisor.as_ref() };
            let hypervisor = of.and_then(|name| hypervisors.get(name));
            let shared = [Some(&groups), Some(&releases), cluster, hypervisor].into_iter().flatten().cloned();
            shared.chain([Arc::new(own(inventory, host))]).collect()
        })
        .collect();
    for (host, layers) in inventory.hosts.iter_mut().zip(builtin) {
        host.builtin = layers;
    }
}

/// What only this host has.
fn own(inventory: &Inventory, host: &Host) -> Vars {
    let span = host.span;
    let names = host.group_names.iter().map(|name| Node::string(span, name.as_str())).collect();
    let mut vars: Vars = [
        ("inventory_hostname".into(), name_of(host)),
        ("group_names".into(), Node::new(span, Kind::Seq(names))),
        ("host".into(), describe_host(host)),
    ]
    .into();
    if let Some(cluster) = host.cluster() {
        let cluster = inventory.cluster(cluster.as_str());
        vars.insert("member".into(), describe_member(host, cluster));
    }
    if let Some(pin) = &host.endpoint.pin {
        vars.insert("guest".into(), describe_guest(inventory, host, pin));
    }
    vars
}

fn groups(inventory: &Inventory, span: Span) -> Node {
    // Every name is one string, however many groups list it.
    let names: Vec<Node> = inventory.hosts.iter().map(name_of).collect();
    let lists = inventory.groups().map(|group| {
        let hosts = group.members.iter().map(|id| names[id.index()].clone()).collect();
        (group.name.as_str(), Node::new(group.span.unwrap_or(span), Kind::Seq(hosts)))
    });
    mapping(span, lists)
}

fn hypervisors(inventory: &Inventory) -> HashMap<HostName, Layer> {
    let mut guests: HashMap<&HostName, Vec<&Host>> = HashMap::new();
    for host in &inventory.hosts {
        if let Some(hypervisor) = &host.hypervisor {
            guests.entry(hypervisor).or_default().push(host);
        }
    }
    let layer = |host: &Host| {
        let mut node = describe_host(host);
        let here = guests.remove(&host.name).unwrap_or_default();
        let members: Vec<&Host> = here.iter().copied().filter(|host| host.cluster().is_some()).collect();
        let guests: Vec<&Host> = here.into_iter().filter(|host| host.is_guest()).collect();
        push(&mut node, "members", names(host.span, &members));
        push(&mut node, "guests", names(host.span, &guests));
        push(&mut node, "clusters", clusters_here(inventory, host.span, &members));
        for name in ["pools", "networks", "images"] {
            let section = host.sections.get(name).filter(|section| !section.is_null());
            push(&mut node, name, section.cloned().unwrap_or_else(|| mapping(host.span, [])));
        }
        (host.name.clone(), one("hypervisor", node))
    };
    inventory.hypervisors().map(layer).collect()
}

fn names(span: Span, hosts: &[&Host]) -> Node {
    Node::new(span, Kind::Seq(hosts.iter().map(|host| name_of(host)).collect()))
}

/// The clusters with members on a hypervisor; `here` are those.
fn clusters_here(inventory: &Inventory, span: Span, members: &[&Host]) -> Node {
    let mut here: indexmap::IndexMap<&str, Vec<&Host>> = indexmap::IndexMap::new();
    for member in members {
        if let Some(cluster) = member.cluster() {
            here.entry(cluster.as_str()).or_default().push(member);
        }
    }
    let describe = |(name, members): (&str, Vec<&Host>)| {
        let mut node = describe_cluster(inventory, inventory.cluster(name)?, span);
        push(&mut node, "here", names(span, &members));
        Some(node)
    };
    Node::new(span, Kind::Seq(here.into_iter().filter_map(describe).collect()))
}

fn describe_cluster(inventory: &Inventory, cluster: &Cluster, span: Span) -> Node {
    let span = cluster.span.unwrap_or(span);
    let members = cluster.members.iter().map(|id| describe_member(inventory.host_by_id(*id), None)).collect();
    let mut node = mapping(
        span,
        [("name", Node::string(span, cluster.name.as_str())), ("members", Node::new(span, Kind::Seq(members)))],
    );
    cluster.sections.iter().for_each(|(name, section)| push(&mut node, name, section.clone()));
    // What is not written says nothing, but it is there.
    for name in ["etcd", "tls", "auth", "backup"].into_iter().filter(|name| cluster.sections.get(*name).is_none()) {
        push(&mut node, name, mapping(span, []));
    }
    node
}

/// A member; with its cluster given, also its sections on top of the cluster's.
fn describe_member(host: &Host, cluster: Option<&Cluster>) -> Node {
    let mut node = describe_host(host);
    push(&mut node, "hypervisor", hypervisor_name(host));
    push(&mut node, "ip", ip_of(host));
    let Some(cluster) = cluster else { return node };
    push(&mut node, "cluster", Node::string(host.span, cluster.name.as_str()));
    push(&mut node, "tls", host.sections.get("tls").cloned().unwrap_or_else(|| mapping(host.span, [])));
    for name in ["interfaces", "guest", "etcd"] {
        let merged = match merged(Some(cluster), host, name) {
            Some(merged) => merged,
            None if name == "etcd" => mapping(host.span, []),
            None => continue,
        };
        push(&mut node, name, if name == "interfaces" { with_macs(host, merged) } else { merged });
    }
    node
}

/// A guest that etcdrun creates: its section, and what else is needed to create it.
fn describe_guest(inventory: &Inventory, host: &Host, pin: &str) -> Node {
    let cluster = host.cluster().and_then(|name| inventory.cluster(name.as_str()));
    let text = |text: &str| Node::string(host.span, text);
    let own = [
        ("name", name_of(host)),
        ("hypervisor", hypervisor_name(host)),
        ("cluster", text(cluster.map_or("", |cluster| cluster.name.as_str()))),
        ("is_spread", Node::new(host.span, Kind::Bool(cluster.is_some_and(|it| is_spread(inventory, it))))),
        ("user", text(host.endpoint.user.as_deref().unwrap_or(DEFAULT_ADMIN))),
        ("pin", text(pin)),
    ];
    let mut node = merged(cluster, host, "guest").unwrap_or_else(|| mapping(host.span, []));
    own.into_iter().for_each(|(name, value)| push(&mut node, name, value));
    let interfaces = merged(cluster, host, "interfaces");
    let interfaces = interfaces.unwrap_or_else(|| Node::new(host.span, Kind::Seq(Vec::new())));
    push(&mut node, "interfaces", with_macs(host, interfaces));
    node
}

/// A section of a host over that of its cluster.
fn merged(cluster: Option<&Cluster>, host: &Host, name: &str) -> Option<Node> {
    match (cluster.and_then(|cluster| cluster.sections.get(name)), host.sections.get(name)) {
        (Some(general), Some(specific)) => Some(overlay(general, specific)),
        (Some(only), None) | (None, Some(only)) => Some(only.clone()),
        (None, None) => None,
    }
}

fn hypervisor_name(host: &Host) -> Node {
    let name = host.hypervisor.as_ref().map_or(Kind::Null, |name| Kind::String(name.as_str().into()));
    Node::new(host.span, name)
}

/// Whether the guests of a cluster are on several hypervisors.
fn is_spread(inventory: &Inventory, cluster: &Cluster) -> bool {
    let mut places = cluster.members.iter().filter_map(|id| inventory.host_by_id(*id).hypervisor.as_ref());
    let first = places.next();
    places.any(|place| Some(place) != first)
}

/// The address that etcd binds: the one that is said, that of the first interface, or where to connect.
fn ip_of(host: &Host) -> Node {
    let field = |section: &Node, name: &str| Some(section.as_map()?.get(name)?.clone());
    let said = host.sections.get("etcd").and_then(|etcd| field(etcd, "ip"));
    let first = || host.sections.get("interfaces")?.as_seq()?.first().and_then(|first| field(first, "ip"));
    let bare = |node: Node| match node.as_str().and_then(|text| text.split_once('/')) {
        Some((ip, _)) => Node::string(node.span, ip),
        None => node,
    };
    said.or_else(first).map_or_else(|| Node::string(host.span, host.address()), bare)
}

/// Interfaces without a MAC address get the one that belongs to their guest's name and their place.
fn with_macs(host: &Host, mut interfaces: Node) -> Node {
    let Kind::Seq(list) = &mut interfaces.kind else { return interfaces };
    for (position, interface) in list.iter_mut().enumerate() {
        if interface.as_map().is_some_and(|map| map.get("mac").is_none()) {
            push(interface, "mac", Node::string(host.span, derived_mac(host.name.as_str(), position)));
        }
    }
    interfaces
}

/// Mappings merge at every depth; anything else is replaced.
pub(super) fn overlay(general: &Node, specific: &Node) -> Node {
    let (Kind::Map(below), Kind::Map(above)) = (&general.kind, &specific.kind) else { return specific.clone() };
    let kept = below.iter().map(|(key, node)| {
        let node = above.get(&key.name).map_or_else(|| node.clone(), |above| overlay(node, above));
        (key.clone(), node)
    });
    let added = above.iter().filter(|(key, _)| below.get(&key.name).is_none()).cloned();
    Node::new(specific.span, Kind::Map(Map::new(kept.chain(added).collect())))
}

fn describe_host(host: &Host) -> Node {
    let zone = host.zone.as_deref().map_or(Kind::Null, |zone| Kind::String(zone.into()));
    mapping(
        host.span,
        [
            ("name", name_of(host)),
            ("address", Node::string(host.span, host.address())),
            ("zone", Node::new(host.span, zone)),
        ],
    )
}

fn name_of(host: &Host) -> Node {
    Node::string(host.span, host.name.as_str())
}

fn mapping<'n>(span: Span, entries: impl IntoIterator<Item = (&'n str, Node)>) -> Node {
    let entries = entries.into_iter().map(|(name, node)| (Key { name: name.into(), span }, node)).collect();
    Node::new(span, Kind::Map(Map::new(entries)))
}

fn push(node: &mut Node, name: &str, value: Node) {
    if let Kind::Map(map) = &mut node.kind {
        map.push(Key { name: name.into(), span: value.span }, value);
    }
}

fn one(name: &str, node: Node) -> Layer {
    Arc::new([(name.into(), node)].into())
}
