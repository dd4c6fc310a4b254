//! Rules about where members are: what etcd lists, what the inventory has, and what is in the settings on the disks.
//!
//! A member that listens elsewhere than etcd lists it still dials the others, so it looks healthy. Two such members cannot reach
//! each other, and once all are like that the cluster has no quorum, for good.

use super::{Answer, Gate, Situation};

/// After a turn the member of that turn counts, since the turns of others may be still to come.
pub(super) fn known(situation: &Situation<'_>, gate: Gate) -> Answer {
    let counts = |name: &str| gate != Gate::After || situation.is_target(name);
    let wanted = situation.peers.iter().filter(|(name, _)| counts(name));
    let listed = |name: &str| situation.now.list().iter().find(|member| member.name == name);
    let moved = wanted.filter_map(|(name, url)| Some((name, url, listed(name)?))).find(|(_, url, member)| {
        // One that a cluster was adopted with may have several.
        !member.peer_urls.contains(url)
    });
    match moved {
        None => Answer::holds("etcd lists the addresses of the inventory"),
        Some((name, url, member)) => Answer::refused(
            format!("etcd lists {name} at {}, but the inventory has it at {url}", member.peer_urls.join(", ")),
            "run `etcdrun playbook settings.yaml -l CLUSTER`, which changes it in each member's turn; or put the old address back; or move the member with `etcdrun member move`",
        ),
    }
}

pub(super) fn at_start(situation: &Situation<'_>, _: Gate) -> Answer {
    let targets = situation.hosts.iter().filter(|host| situation.is_target(&host.name));
    let starts = targets.filter_map(|host| Some((&host.name, host.next_peers.as_ref()?)));
    let listed = |name: &str| situation.now.list().iter().find(|member| member.name == name);
    let elsewhere = starts
        .filter_map(|(name, next)| Some((name, next, listed(name)?)))
        .find(|(_, next, member)| !next.iter().any(|listens| is_at(listens, &member.peer_urls)));
    match elsewhere {
        None => Answer::holds("it would start at the address that etcd lists"),
        Some((name, next, member)) => Answer::refused(
            format!(
                "the settings on {name} have the peer address {}, but etcd lists it at {}: after a restart the other members could not reach it",
                next.join(", "),
                member.peer_urls.join(", ")
            ),
            "run `etcdrun playbook settings.yaml -l CLUSTER`: it registers the new address in etcd before the member restarts",
        ),
    }
}

/// Members that were connected before a firewall came between them go on with their old connections, until one of them restarts.
pub(super) fn peer_ports(situation: &Situation<'_>, _: Gate) -> Answer {
    let cut = situation.hosts.iter().find_map(|host| Some((&host.name, host.unreached.first()?)));
    match cut {
        None => Answer::holds("members reach each other's peer ports"),
        Some((from, to)) => Answer::refused(
            format!(
                "{from} cannot open a new connection to the peer port of {to}: at present they may use older ones, which end with the restart"
            ),
            format!(
                "allow the connection (a firewall or a route on {from}, on {to}, or between them), then `etcdrun resume`; to look: `etcdrun exec {from},{to} -b -- nft list ruleset`"
            ),
        ),
    }
}

/// Whether a server that listens there is reached at one of these addresses.
pub fn is_at(listens: &str, urls: &[impl AsRef<str>]) -> bool {
    let mut urls = urls.iter().map(AsRef::as_ref);
    urls.any(|url| url == listens || (is_everywhere(listens) && port(url) == port(listens)))
}

pub(super) fn client_port(situation: &Situation<'_>, _: Gate) -> Answer {
    let Some(wanted) = situation.client_port else { return Answer::holds("not compared") };
    let mut ports = situation.hosts.iter().filter_map(|host| Some((&host.name, port(host.client_urls.first()?)?)));
    match ports.find(|(_, port)| *port != wanted) {
        None => Answer::holds(format!("clients are served at port {wanted}")),
        Some((name, port)) => Answer::refused(
            format!(
                "{name} serves clients at port {port}, but the inventory has {wanted}, so the member cannot be queried"
            ),
            "put the old port back; or change it without gates: `etcdrun playbook site.yaml -l CLUSTER -e etcd_allow_outage=true`, which restarts one member at a time",
        ),
    }
}

/// A member is asked at its `ip`, through its own host.
pub(super) fn client_address(situation: &Situation<'_>, _: Gate) -> Answer {
    let urls = |name: &str| situation.hosts.iter().find(|host| host.name == name).map(|host| &host.client_urls);
    let serves = |urls: &[String], url: &str| {
        urls.is_empty() || urls.iter().any(|listens| is_everywhere(listens) || address(listens) == address(url))
    };
    let mut wanted = situation.peers.iter().filter_map(|(name, url)| Some((name, url, urls(name)?)));
    match wanted.find(|(_, url, urls)| !serves(urls, url)) {
        None => Answer::holds("clients are served at the addresses of the inventory"),
        Some((name, url, urls)) => Answer::refused(
            format!(
                "{name} serves clients at {}, but the inventory has it at {}, so it cannot be queried",
                urls.join(", "),
                address(url).unwrap_or(url)
            ),
            format!(
                "put the old address back; to move a guest, run `etcdrun member move {name} --to HYPERVISOR`; to use another host, run `etcdrun member replace {name} --new-name NAME --ip ADDRESS`"
            ),
        ),
    }
}

fn port(url: &str) -> Option<u16> {
    url.trim_end_matches('/').rsplit_once(':')?.1.parse().ok()
}

fn address(url: &str) -> Option<&str> {
    Some(url.split_once("//")?.1.rsplit_once(':')?.0)
}

fn is_everywhere(url: &str) -> bool {
    matches!(address(url), Some("0.0.0.0" | "[::]"))
}
