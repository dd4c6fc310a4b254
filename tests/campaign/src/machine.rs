//! What a member runs on: a host of the lab, or a guest on one, which is then its hypervisor.

use std::{
    net::{IpAddr, Ipv4Addr},
    path::PathBuf,
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use etcdrun_lab::{Guest, Host, Lab, wait};

use crate::row::{Machines, Row};

/// Who may log into guests.
pub const GUEST_USER: &str = "ops";
/// Addresses of guests end with these numbers, which the lab gives to no host.
const FIRST: u8 = 210;
const LAST: u8 = 219;

/// A virtual machine, and how it is logged into.
#[derive(Clone)]
pub struct Inside {
    pub name: String,
    pub address: Ipv4Addr,
    key: PathBuf,
}

impl Inside {
    pub fn new(lab: &Lab, name: &str, address: IpAddr) -> Option<Self> {
        let IpAddr::V4(address) = address else { return None };
        Some(Self { name: name.to_owned(), address, key: lab.operator_key() })
    }

    /// A command in it, as root. Its key is another one each time that it is built.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        let quoted: Vec<String> = words.iter().map(|word| format!("'{}'", word.replace('\'', r"'\''"))).collect();
        let output = Command::new("ssh")
            .args(["-F", "none", "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR"])
            .args(["-o", "UserKnownHostsFile=/dev/null", "-o", "ConnectTimeout=20", "-o", "IdentitiesOnly=yes", "-i"])
            .arg(&self.key)
            .args([&format!("{GUEST_USER}@{}", self.address), &format!("sudo {}", quoted.join(" "))])
            .output()
            .context("ssh could not be started")?;
        if !output.status.success() {
            bail!("{} on {}: {}", words.join(" "), self.name, String::from_utf8_lossy(&output.stderr).trim());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Its power is lost, and what it had not synced with it: its disk has no cache.
    pub fn lose_power(&self, hypervisor: &Host) {
        drop(Guest::new(hypervisor, &self.name).kill());
    }

    /// Switches it on, if it is not. libvirt takes a moment to see that it is off; one that is being replaced is not there.
    pub fn start(&self, hypervisor: &Host) {
        let state = || hypervisor.run(&["virsh", "domstate", &self.name]);
        let runs = || match state() {
            Ok(_) if hypervisor.run(&["virsh", "start", &self.name]).is_ok() => Ok(Some(())),
            Ok(state) if state.trim() == "running" && Guest::new(hypervisor, &self.name).is_running() => Ok(Some(())),
            Ok(_) => Ok(None),
            Err(_) => Ok(Some(())),
        };
        drop(wait::until("the guest runs", Duration::from_secs(20), runs));
    }

    pub fn freeze(&self, hypervisor: &Host) {
        drop(Guest::new(hypervisor, &self.name).freeze());
    }

    pub fn thaw(&self, hypervisor: &Host) {
        drop(Guest::new(hypervisor, &self.name).thaw());
    }
}

/// What the inventory says of a cluster of guests, and of each of its members.
pub fn describe(row: &Row, lab: &Lab, hypervisors: &[&Host]) -> Result<(String, String)> {
    let address = |last: u8| lab.subnet().address(last);
    let key = std::fs::read_to_string(lab.operator_key().with_extension("pub"))?;
    let interface = match row.machines {
        Machines::Macvtap => "macvtap: eth0",
        Machines::Hosts | Machines::Bridge => "bridge: br0",
    };
    let via = if row.machines == Machines::Macvtap { "    ssh_via: direct\n" } else { "" };
    // The data disk is as a real one should be; the other one only boots.
    let sections = format!(
        "{via}    address_pool: {{ {interface}, first: {}/24, last: {} }}
    guest:
      vcpus: 1
      memory: 512MiB
      disk: {{ base: /srv/guest.qcow2, size: 4GiB, cache: unsafe }}
      data_disk: {{ size: 4GiB, cache: none }}
      admin: {{ user: {GUEST_USER}, ssh_keys: [\"{}\"] }}
    ssh: {{ user: {GUEST_USER} }}\n",
        address(FIRST + 5),
        address(LAST),
        key.trim(),
    );
    let members = (0..).zip(hypervisors.iter().take(row.members)).map(|(number, hypervisor)| {
        format!(
            "      etcd-{}: {{ hypervisor: {}, interfaces: [{{ {interface}, ip: {}/24 }}] }}\n",
            number + 1,
            hypervisor.name(),
            address(FIRST + number)
        )
    });
    Ok((sections, members.collect()))
}
