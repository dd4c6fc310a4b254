//! The inventory that the lab writes, so that `etcdrun exec hypervisors -- virsh version` works right after it is up.

use std::{fmt::Write, fs, path::Path};

use anyhow::Result;

use crate::{
    Lab,
    host::{Host, Kind},
    lab::DEFAULT_NAME,
};

/// Where etcdrun looks by default, from the root of the project. Only the default lab is written there.
const PROJECT_INVENTORY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../inventory/lab.yaml");

/// Writes the inventory of all hosts that were not made by a test for itself.
pub(crate) fn write(lab: &Lab) -> Result<()> {
    let hosts: Vec<Host> = lab.hosts()?.into_iter().filter(|host| !host.record.temporary).collect();
    write_for(lab, &hosts, lab.folder())?;
    if lab.name() == DEFAULT_NAME && Path::new(PROJECT_INVENTORY).parent().is_some_and(Path::is_dir) {
        fs::copy(lab.folder().join("inventory.yaml"), PROJECT_INVENTORY)?;
    }
    Ok(())
}

/// Writes an inventory of some hosts into a folder, and a known_hosts file with their keys beside it.
pub fn write_for(lab: &Lab, hosts: &[Host], folder: &Path) -> Result<()> {
    let known_hosts = folder.join("known_hosts");
    fs::write(&known_hosts, keys_of(hosts)?)?;
    Ok(fs::write(folder.join("inventory.yaml"), text(lab, hosts, &known_hosts)?)?)
}

pub(crate) fn remove(lab: &str) -> Result<()> {
    if lab == DEFAULT_NAME && fs::exists(PROJECT_INVENTORY)? {
        fs::remove_file(PROJECT_INVENTORY)?;
    }
    Ok(())
}

fn keys_of(hosts: &[Host]) -> Result<String> {
    hosts.iter().map(|host| Ok(format!("{},{} {}\n", host.name(), host.address(), host.host_key()?))).collect()
}

fn text(lab: &Lab, hosts: &[Host], known_hosts: &Path) -> Result<String> {
    let mut text = String::from("# Written by the lab; it goes when the lab goes down.\n");
    writeln!(text, "ssh:")?;
    writeln!(text, "  user: root")?;
    writeln!(text, "  identity_file: {}", lab.operator_key().display())?;
    writeln!(text, "  identities_only: true")?;
    writeln!(text, "  known_hosts: [{}]", known_hosts.display())?;
    for (section, is_hypervisor) in [("hypervisors", true), ("hosts", false)] {
        let mut entries = hosts.iter().filter(|host| (host.kind() == Kind::Hypervisor) == is_hypervisor).peekable();
        if entries.peek().is_some() {
            writeln!(text, "{section}:")?;
        }
        for host in entries {
            writeln!(text, "  {}: {{ address: {}, zone: {} }}", host.name(), host.address(), host.zone())?;
        }
    }
    Ok(text)
}
