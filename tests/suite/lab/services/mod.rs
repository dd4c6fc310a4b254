//! The roles of what is around etcd: time, monitoring, firewall, balancer, PostgreSQL. Their packages are in the image of the hosts, and
//! everything that runs is real.

mod balancer;
mod firewall;
mod kubernetes;
mod logs;
mod monitoring;
mod platform;
mod postgres;
mod postgres_backup;
mod time;

use super::{Said, etcd::Site};

/// Runs a playbook of the test's own.
fn play(site: &Site, name: &str, text: &str) -> Said {
    site.place.folder.write(name, text);
    again(site, name)
}

fn again(site: &Site, name: &str) -> Said {
    site.place.folder.run(&["playbook", name, "-i", "inventory.yaml"])
}

/// How many tasks say that they have changed something.
fn changes(said: &Said) -> usize {
    said.stdout.lines().filter(|line| line.starts_with("changed ")).count()
}

#[track_caller]
fn changes_nothing(said: Said) {
    let said = said.ends(0);
    assert_eq!(changes(&said), 0, "{}", said.stdout);
}

/// Adds the machines from this one on to the inventory, as hosts of a group.
fn add_group(site: &Site, from: usize, group: &str) {
    let hosts = site.place.hosts[from..].iter();
    let entries: String = hosts
        .map(|host| format!("  {}: {{ address: {}, groups: [{group}] }}\n", host.name(), host.address()))
        .collect();
    let text = site.place.folder.read("inventory.yaml");
    site.place.folder.write("inventory.yaml", &format!("{text}hosts:\n{entries}groups:\n  {group}: {{}}\n"));
}

/// A shell command on a machine, past SSH.
#[track_caller]
fn shell(site: &Site, host: usize, command: &str) -> String {
    site.place.hosts[host].run(&["sh", "-c", command]).unwrap()
}
