//! A large fleet loads fast enough to be loaded at every command.

use std::{fmt::Write, time::Instant};

use crate::inventory::support::{load, load_fine};

/// 1,000 hypervisors and 5,000 members, each written out.
fn large() -> String {
    let mut text = String::from("ssh: {user: ops}\nhypervisors:\n");
    for n in 1..=1000 {
        let (a, b) = (n / 250, n % 250);
        writeln!(text, "  hv{n}: {{address: 10.0.{a}.{b}, zone: rack-{}, groups: [row-{}]}}", n % 40, n % 8).unwrap();
    }
    text += "groups:\n";
    (0..8).for_each(|n| writeln!(text, "  row-{n}: {{vars: {{row: {n}}}}}").unwrap());
    text += "clusters:\n";
    for cluster in 0..1000 {
        writeln!(
            text,
            "  c{cluster}:\n    etcd: {{version: 3.5.34}}\n    vars: {{cluster_id: {cluster}}}\n    members:"
        )
        .unwrap();
        for n in 1..=5 {
            let hypervisor = (cluster * 5 + n) % 1000 + 1;
            let (a, b) = (cluster / 50, cluster % 50 * 5 + n);
            writeln!(
                text,
                "      c{cluster}-{n}: {{hypervisor: hv{hypervisor}, ssh_via: hypervisor, interfaces: [{{network: net, ip: 10.9.{a}.{b}/16}}]}}"
            )
            .unwrap();
        }
    }
    text
}

#[test]
fn six_thousand_hosts_load_quickly() {
    let text = large();
    let start = Instant::now();
    let fleet = load_fine(&text);
    let loaded = start.elapsed();
    assert_eq!(fleet.inventory.hosts().len(), 6000);
    let start = Instant::now();
    assert_eq!(fleet.select("members:&c1*:!c1[0-9]*").map(|hosts| hosts.len()), Ok(5));
    assert_eq!(fleet.select("hypervisors:!hv[1-500]").map(|hosts| hosts.len()), Ok(500));
    let selected = start.elapsed();
    // An optimised build takes 0.2 s; this bound allows for a debug build on a busy machine, and still
    // catches whatever grows with the square of the fleet.
    assert!(loaded.as_secs() < 20 && selected.as_secs() < 5, "{loaded:?} {selected:?}");
}

/// A file that is wrong everywhere is refused in time, too.
#[test]
fn thousands_of_problems_are_reported_quickly() {
    let mut text = String::from("hosts: {\"h[1-3000]\": {}}\ngroups:\n  g:\n    hosts:\n");
    (1..=3000).for_each(|n| writeln!(text, "      - hh{n}").unwrap());
    text += "  k:\n    hosts:\n";
    (1..=3000).for_each(|n| writeln!(text, "      m{n}: {{adress: x}}").unwrap());
    let start = Instant::now();
    let loaded = load(&text);
    assert_eq!(loaded.diagnostics.iter().count(), 6000);
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}
