//! What the interfaces of guests must agree on.

use std::collections::HashMap;

use super::{entry::Interface, types::Host};
use crate::{
    model::{Span, derived_mac},
    source::{Diagnostic, Diagnostics, Node},
};

/// Where an address must be unique: networks of different clusters may be apart, and so may those of other guests on different
/// hypervisors, unless it is a bridge or an interface that attaches them.
type Realm<'h> = (Option<&'h str>, Option<&'h str>);

fn realm<'h>(host: &'h Host, interface: &Interface) -> Realm<'h> {
    let cluster = host.cluster().map(|cluster| cluster.as_str());
    let hypervisor = host.hypervisor.as_ref().map(|name| name.as_str());
    (cluster, hypervisor.filter(|_| cluster.is_none() && interface.network.is_some()))
}

pub(super) fn check<'h>(guests: impl Iterator<Item = (&'h Host, &'h [Interface])>, diagnostics: &mut Diagnostics) {
    let mut taken: HashMap<(Realm<'h>, String), Span> = HashMap::new();
    for (host, interfaces) in guests {
        let nodes = host.sections.get("interfaces").and_then(Node::as_seq).unwrap_or_default();
        for (position, (interface, node)) in interfaces.iter().zip(nodes).enumerate() {
            check_one(interface, node, diagnostics);
            let ip = interface.ip.as_ref().map(|ip| ("address", "ip", ip.0.0.addr().to_string()));
            let mac = interface.mac.as_ref().map(|mac| mac.0.0.clone());
            let mac = mac.unwrap_or_else(|| derived_mac(host.name.as_str(), position));
            for (what, field, value) in ip.into_iter().chain([("MAC address", "mac", mac)]) {
                let span = place(node, field);
                if let Some(first) = taken.insert((realm(host, interface), value.clone()), span) {
                    let message = match host.cluster() {
                        Some(cluster) => format!("two members of `{cluster}` have the {what} {value}"),
                        None => format!("two guests have the {what} {value}"),
                    };
                    let problem = Diagnostic::error(span, message);
                    diagnostics.push(match first == span {
                        true => problem.help("in a range, write {n} or {n+10} where they differ"),
                        false => problem.related(first, "the first is here"),
                    });
                }
            }
        }
    }
}

fn check_one(interface: &Interface, node: &Node, diagnostics: &mut Diagnostics) {
    let attachments = [&interface.network, &interface.bridge, &interface.macvtap];
    if attachments.into_iter().flatten().count() != 1 {
        let message = "an interface is attached to one thing: `network`, `bridge` or `macvtap`";
        diagnostics.error(node.span, message);
    }
    let (Some(ip), Some(gateway)) = (&interface.ip, &interface.gateway) else { return };
    let (ip, gateway) = (ip.0.0, gateway.0.0);
    // A single address has no neighbours; its gateway is reached by a route of its own.
    if ip.prefix_len() != ip.max_prefix_len() && !ip.contains(&gateway) {
        let message = format!("the gateway {gateway} is not in the network {}", ip.trunc());
        diagnostics.error(place(node, "gateway"), message);
    }
}

fn place(node: &Node, field: &str) -> Span {
    node.as_map().and_then(|map| map.get(field)).map_or(node.span, |node| node.span)
}
