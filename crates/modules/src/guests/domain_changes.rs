//! What differs between a domain and what it should be, and what each difference needs.

use quick_xml::SeError;

use super::domain_xml::{Domain, Interface, to_xml};

/// What is to be done, and what is left to others.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Changes {
    /// The definition must be written.
    pub define: bool,
    /// Both definitions as text, if they differ.
    pub diff: Option<(String, String)>,
    /// Devices that a running domain gets at once: `attach XML` or `update XML`.
    pub live: Vec<String>,
    /// What the running domain gets only by a restart.
    pub restart: Vec<String>,
    /// What only a new domain would have.
    pub rebuild: Vec<String>,
    /// The UUID of the domain that is there.
    pub uuid: Option<String>,
}

impl Changes {
    pub fn is_change(&self) -> bool {
        self.define || !self.live.is_empty()
    }
}

/// Compares what is defined and what runs with what is wanted.
pub(super) fn between(defined: Option<Domain>, live: Option<Domain>, wanted: &Domain) -> Result<Changes, SeError> {
    let Some(defined) = defined else {
        let diff = Some((String::new(), to_xml(wanted)?));
        return Ok(Changes { define: true, diff, ..Changes::default() });
    };
    let mut changes = Changes { uuid: defined.uuid.clone(), ..Changes::default() };
    let mut defined = defined.normalized(wanted);
    if defined.uuid != wanted.uuid {
        changes.rebuild.push("another UUID".into());
        defined.uuid.clone_from(&wanted.uuid);
    }
    if defined != *wanted {
        changes.define = true;
        changes.diff = Some((to_xml(&defined)?, to_xml(wanted)?));
    }
    if let Some(live) = live {
        compare_live(&live.normalized(wanted), wanted, &mut changes)?;
    }
    Ok(changes)
}

fn compare_live(live: &Domain, wanted: &Domain, changes: &mut Changes) -> Result<(), SeError> {
    let mut restart = |what: &str, differs: bool| {
        if differs {
            changes.restart.push(what.to_owned());
        }
    };
    restart("virtualization", live.kind != wanted.kind);
    restart("memory", live.memory != wanted.memory);
    restart("processors", live.vcpu != wanted.vcpu);
    restart("machine", live.os != wanted.os);
    // The processor that a running domain shows is spelled out, feature by feature.
    restart("processor", live.kind == wanted.kind && mode(live) != mode(wanted) && mode(live) != Some("custom"));
    restart("Ignition configuration", live.sysinfo != wanted.sysinfo);
    restart("console", live.devices.serial != wanted.devices.serial);
    restart("guest agent", live.devices.channel.len() != wanted.devices.channel.len());
    restart("watchdog", live.devices.watchdog != wanted.devices.watchdog);
    restart("random numbers", live.devices.rng != wanted.devices.rng);
    compare_disks(live, wanted, changes)?;
    compare_interfaces(live, wanted, changes)
}

fn mode(domain: &Domain) -> Option<&str> {
    domain.cpu.as_ref().map(|cpu| cpu.mode.as_str())
}

/// A disk more is attached at once; a disk that goes or changes waits for a restart, and so does one that moves to another name.
fn compare_disks(live: &Domain, wanted: &Domain, changes: &mut Changes) -> Result<(), SeError> {
    for disk in &wanted.devices.disk {
        match live.devices.disk.iter().find(|other| other.target.dev == disk.target.dev) {
            None if live.devices.disk.iter().any(|other| other.source == disk.source) => {
                changes.restart.push(format!("disk {}", disk.target.dev));
            }
            None => changes.live.push(format!("attach {}", to_xml(disk)?)),
            Some(other) if other == disk => {}
            Some(_) => changes.restart.push(format!("disk {}", disk.target.dev)),
        }
    }
    for disk in &live.devices.disk {
        if !wanted.devices.disk.iter().any(|other| other.target.dev == disk.target.dev) {
            changes.restart.push(format!("disk {}", disk.target.dev));
        }
    }
    Ok(())
}

/// Interfaces are known by their MAC addresses.
fn compare_interfaces(live: &Domain, wanted: &Domain, changes: &mut Changes) -> Result<(), SeError> {
    let find = |list: &[Interface], mac: &str| list.iter().find(|other| other.mac.address == mac).cloned();
    for interface in &wanted.devices.interface {
        match find(&live.devices.interface, &interface.mac.address) {
            None => changes.live.push(format!("attach {}", to_xml(interface)?)),
            Some(other) if other == *interface => {}
            // libvirt can plug an interface into another network or bridge, but not make it one of another type.
            Some(other) if other.kind == interface.kind && other.kind != "direct" => {
                changes.live.push(format!("update {}", to_xml(interface)?));
            }
            Some(_) => changes.restart.push(format!("interface {}", interface.mac.address)),
        }
    }
    for interface in &live.devices.interface {
        if find(&wanted.devices.interface, &interface.mac.address).is_none() {
            changes.restart.push(format!("interface {}", interface.mac.address));
        }
    }
    Ok(())
}
