//! Tests in the lab: real hypervisors, guests and hosts, each test with its own. `make test` brings the lab up for them.

mod adopt;
mod apart;
mod backup;
mod certs;
mod changed_world;
mod data;
mod drain;
mod etcd;
mod everyday;
mod faults;
mod fleet;
mod gates;
mod gateway;
mod guests;
mod hosts;
mod hypervisors;
mod keys;
mod knock;
mod leftovers;
mod libvirt;
mod members;
mod orphans;
mod overtaken;
mod plan;
mod recover;
mod releases;
mod rollout_clusters;
mod rollout_faults;
mod rollout_killed;
mod services;
mod site;
mod systemd;
mod tools;
mod turns;
mod upgrade;
mod versions;
mod web;
mod writer;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use etcdrun_lab::{Borrowed, Copies, Host, Kind, Lab, etcd_tools, write_inventory};

use super::support::program::{Folder, Said};

/// The lab that this run of the tests has.
pub fn lab() -> Lab {
    let name = std::env::var("ETCDRUN_LAB").unwrap_or_else(|_| "etcdrun-test".to_owned());
    Lab::open(&name).unwrap_or_else(|error| {
        panic!("{error:#}\nThis test needs the lab. `make test` has one; for a single test: `make test-lab FILTER=...`")
    })
}

/// A name for what the program, as it is now, makes by this recipe.
fn name_of(recipe: &str) -> String {
    let program = std::fs::metadata(env!("CARGO_BIN_EXE_etcdrun")).unwrap();
    let mut hasher = DefaultHasher::new();
    (env!("CARGO_BIN_EXE_etcdrun"), program.len(), program.modified().unwrap(), recipe).hash(&mut hasher);
    format!("{:016x}", hasher.finish())
}

/// Hosts of one test, and a folder with an inventory of them. The folder goes first: who holds the addresses may use its place.
pub struct Place {
    pub folder: Folder,
    pub hosts: Vec<Borrowed>,
}

impl Place {
    pub fn new(kind: Kind, count: usize) -> Self {
        let lab = lab();
        let hosts = lab.borrow(kind, count).unwrap();
        let folder = Folder::for_machines();
        let named: Vec<Host> = hosts.iter().map(|host| (**host).clone()).collect();
        write_inventory(&lab, &named, &folder.path("")).unwrap();
        Self { folder, hosts }
    }

    /// Hosts that somebody has prepared in the same way, or that are prepared now. `recipe` says all that the way depends on.
    /// What a test does to them no other test sees: each has a copy, and hosts are switched on for it.
    pub fn prepared(kind: Kind, count: usize, recipe: &str, prepare: impl FnOnce(&Self)) -> Self {
        let lab = lab();
        let name = name_of(recipe);
        if let Some(Copies { hosts, folder, place }) = lab.borrow_kept(&name).unwrap() {
            return Self { folder: Folder::copy_of(&folder, &place), hosts };
        }
        let place = Self::new(kind, count);
        prepare(&place);
        lab.keep(&name, &place.hosts, place.folder.path("").as_path()).unwrap();
        place
    }

    /// Runs a shell command on a host over SSH.
    pub fn exec(&self, host: usize, command: &str) -> Said {
        self.folder.run(&["exec", self.hosts[host].name(), "--", "sh", "-c", command])
    }

    /// The verb `etcdctl`, for a cluster of the inventory.
    pub fn etcdctl(&self, cluster: &str, words: &[&str]) -> Said {
        let words = [&["etcdctl", cluster, "-i", "inventory.yaml", "--"], words].concat();
        let mut command = self.folder.command(&words);
        Said::of(command.env("ETCDCTL_PROGRAM", etcd_tools().unwrap().join("etcdctl")).output().unwrap())
    }

    /// Whether a host can be logged into within two seconds.
    pub fn can_log_in(&self, host: usize) -> bool {
        self.folder.run(&["exec", self.hosts[host].name(), "--connect-timeout", "2", "--", "true"]).code == 0
    }
}

/// What etcdctl says for people, without the lines of its log: it warns of every call that it repeats.
fn etcdctl_words(output: &std::process::Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let words = stderr.lines().filter(|line| !line.starts_with("{\"level\":")).flat_map(|line| [line, "\n"]);
    String::from_utf8_lossy(&output.stdout).into_owned() + &words.collect::<String>()
}
