//! Where members live: layouts that cannot work are told at load, with the arithmetic.

use crate::inventory::support::{load, load_fine};

/// Three hypervisors with a network that ends there, and a cluster with these settings and members.
fn text(cluster: &str, members: &str) -> String {
    format!(
        "hypervisors:\n  hv[1-3]: {{ zone: \"z{{n}}\", networks: {{ inner: {{ address: 192.168.7.1/24 }} }} }}\nclusters:\n  c:\n{cluster}    guest: {{}}\n    members:\n{members}"
    )
}

fn member(number: usize, hypervisor: usize, more: &str) -> String {
    format!("      m{number}: {{ hypervisor: hv{hypervisor}, {more} }}\n")
}

fn members(hypervisors: &[usize], more: &str) -> String {
    hypervisors.iter().enumerate().map(|(index, hypervisor)| member(index + 1, *hypervisor, more)).collect()
}

#[test]
fn one_death_must_not_take_the_majority() {
    let problems = load(&text("", &members(&[1, 1, 2], ""))).problems();
    let expected =
        "the loss of `hv1` would stop m1, m2 (2 of the 3 members of `c`): 1 would be left, and a majority is 2";
    assert!(problems.contains(expected) && problems.contains("allow_colocation"), "{problems}");
    assert!(problems.contains("hosts.yaml:8:7"), "{problems}");
    load_fine(&text("    allow_colocation: true\n", &members(&[1, 1, 1], "")));
    load_fine(&text("", &members(&[1, 2, 3], "")));
    // Two of five may go.
    load_fine(&text("", &members(&[1, 1, 2, 2, 3], "")));
    assert!(load(&text("", &members(&[1, 1, 1, 2, 3], ""))).problems().contains("3 of the 5"));
    // One of one, or one of two, cannot be placed better.
    load_fine(&text("", &members(&[1], "")));
}

#[test]
fn zones_are_warned_about() {
    let problems = load(&text("", &members(&[1, 2, 3], "")).replace("z{n}", "same")).problems();
    assert!(problems.is_empty(), "a fleet with one zone has no choice: {problems}");
    let zones = text("", &members(&[1, 2, 3], "")).replace("  hv[1-3]:", "  hv3: { zone: other }\n  hv[1-2]:");
    let problems = load(&zones.replace("\"z{n}\"", "same")).problems();
    assert!(problems.starts_with("warning: the zone `same` has 2 of the 3 members of `c`"), "{problems}");
}

#[test]
fn networks_that_end_at_a_hypervisor_hold_no_cluster_together() {
    let on = |ip: usize| format!("interfaces: [{{ network: inner, ip: 192.168.7.{ip}/24 }}]");
    let two: String = [1, 2, 3].iter().map(|n| member(*n, *n, &on(10 + n))).collect();
    let problems = load(&text("", &two)).problems();
    assert!(problems.contains("`m1` and `m2` could not reach each other"), "{problems}");
    let one: String = [1, 2, 3].iter().map(|n| member(*n, 1, &on(10 + n))).collect();
    load_fine(&text("    allow_colocation: true\n", &one));
    let outside = text("", &member(1, 1, "interfaces: [{ network: inner, ip: 192.168.8.9/24 }]"));
    assert!(load(&outside).problems().contains("192.168.8.9 is not in the network 192.168.7.0/24"));
    let taken = text("", &member(1, 1, "interfaces: [{ network: inner, ip: 192.168.7.1/24 }]"));
    assert!(load(&taken).problems().contains("the hypervisor's own address"));
}

#[test]
fn macvtap_is_not_reached_through_its_own_hypervisor() {
    let interfaces = "interfaces: [{ macvtap: eth0, ip: 10.0.0.9/24 }]";
    let problems = load(&text("    ssh_via: hypervisor\n", &member(1, 1, interfaces))).problems();
    assert!(
        problems.contains("`m1` cannot be reached through `hv1`") && problems.contains("ssh_via: direct"),
        "{problems}"
    );
    load_fine(&text("    ssh_via: direct\n", &member(1, 1, interfaces)));
    let second = "interfaces: [{ bridge: br0, ip: 10.1.0.9/24 }, { macvtap: eth0, ip: 10.0.0.9/24 }]";
    load_fine(&text("    ssh_via: hypervisor\n", &member(1, 1, second)));
}

#[test]
fn a_guest_section_has_known_keys() {
    let problems = load(
        "clusters: { c: { guest: { vcpu: 2, disk: { bas: x } }, members: { m: { guest: { memory: lots } } } } }\n",
    )
    .problems();
    for expected in ["did you mean `vcpus`?", "did you mean `base`?", "`lots` is not a size"] {
        assert!(problems.contains(expected), "{expected} is missing in\n{problems}");
    }
    let problems = load("hypervisors: { h: { pools: { p: { pat: /x } } } }\n").problems();
    assert!(problems.contains("did you mean `path`?"), "{problems}");
}

#[test]
fn guests_get_a_mac_and_are_known_by_a_pin() {
    let loaded = load_fine(&text("", &member(1, 1, "interfaces: [{ bridge: br0 }]")));
    let found = loaded.var("m1", "guest");
    assert!(found["interfaces"][0]["mac"].as_str().unwrap().starts_with("52:54:00:"), "{found}");
    assert_eq!((&found["pin"], &found["user"]), (&"c/m1".into(), &"ubuntu".into()));
    assert_eq!(loaded.inventory.host("m1").unwrap().endpoint.pin.as_deref(), Some("c/m1"));
}

#[test]
fn members_are_spread_and_get_addresses_from_the_pool() {
    let cluster = "    placement: {}\n    address_pool: { bridge: br0, first: 10.0.0.10/24, last: 10.0.0.13, gateway: 10.0.0.11 }\n";
    let loaded = load_fine(&text(cluster, "      m1: {}\n      m2: { hypervisor: hv1 }\n      m3: {}\n"));
    let hypervisor = |name: &str| loaded.var(name, "member")["hypervisor"].clone();
    assert_eq!(["m1", "m2", "m3"].map(hypervisor), ["hv2", "hv1", "hv3"]);
    assert_eq!(loaded.var("m2", "member")["interfaces"][0]["ip"], "10.0.0.12/24", "the gateway's is left out");
    assert_eq!(loaded.inventory.host("m1").unwrap().address(), "10.0.0.10");
    let problems = load(&text(cluster, "      m[1-5]: {}\n")).problems();
    assert!(problems.contains("no address left for `m4`"), "{problems}");
}
