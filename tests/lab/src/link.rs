//! What is wrong with the link of a host: cut, slow or lossy. It is kept in the host's folder, so that a host that is
//! switched off and on again comes back to the same bad cable.

use std::{fs, time::Duration};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::{
    files::{lock, replace_file},
    host::Host,
    keeper,
    network::{LAN, Switch},
};

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkFault {
    /// Nothing passes, and neither end is told.
    pub cut: bool,
    /// Added in each direction.
    pub delay: Duration,
    /// How many of a hundred frames are lost, in each direction.
    pub loss: u8,
}

impl LinkFault {
    pub(crate) fn carries_nothing(&self) -> bool {
        self.cut || self.loss >= 100
    }

    fn needs_wire(&self) -> bool {
        !self.delay.is_zero() || self.loss > 0
    }
}

pub(crate) fn get(host: &Host) -> Result<LinkFault> {
    let path = host.folder().join("link.json");
    if !path.exists() {
        return Ok(LinkFault::default());
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

pub(crate) fn set(host: &Host, fault: &LinkFault) -> Result<()> {
    if fault.loss > 100 {
        bail!("a loss of {}% is more than everything", fault.loss);
    }
    let _lock = lock(&host.folder())?;
    replace_file(&host.folder().join("link.json"), &serde_json::to_vec(fault)?)?;
    apply(host)
}

/// Makes the switch's side of the link what the host's folder says.
pub(crate) fn apply(host: &Host) -> Result<()> {
    let fault = get(host)?;
    let switch = host.lab.switch()?;
    remove(host)?;
    if host.keeper().is_err() {
        if host.is_running() {
            bail!(
                "{} has lost the process that holds its network; `lab kill` and `lab start` bring it back",
                host.name()
            );
        }
        return Ok(());
    }
    for port in host.ports() {
        if fault.cut {
            switch.ip(&format!("link set {port} nomaster\n"))?;
        } else if fault.needs_wire() {
            insert_wire(host, &switch, &port, &fault)?;
        } else {
            switch.ip(&format!("link set {port} master {LAN}\n"))?;
        }
    }
    Ok(())
}

/// Takes the wires of a host away.
pub(crate) fn remove(host: &Host) -> Result<()> {
    let switch = host.lab.switch()?;
    for port in host.ports() {
        let cgroup = wire_cgroup(host, &port)?;
        cgroup.kill()?;
        cgroup.remove()?;
        switch.unplug(&bridge_end(&port))?;
    }
    Ok(())
}

/// Puts a process between the port and the bridge that carries frames slowly.
fn insert_wire(host: &Host, switch: &Switch, port: &str, fault: &LinkFault) -> Result<()> {
    let (outer, inner) = (bridge_end(port), format!("x{port}"));
    switch.ip(&format!(
        "link set {port} nomaster\n\
         link add {outer} type veth peer name {inner}\n\
         link set {inner} addrgenmode none up\n\
         link set {outer} addrgenmode none master {LAN} up\n"
    ))?;
    let program = host.lab.program().to_str().context("the path of the lab's program is not text")?.to_owned();
    let delay = fault.delay.as_micros().to_string();
    let loss = fault.loss.to_string();
    let namespace = switch.namespace();
    let words = ["nsenter", &namespace, "--", &program, "wire", port, &inner, "--delay-us", &delay, "--loss", &loss];
    let mut wire = keeper::inside(&wire_cgroup(host, port)?, words)?;
    let log = host.folder().join("wire.log");
    wire.stderr(fs::File::create(&log)?);
    keeper::spawn_held(&mut wire).with_context(|| fs::read_to_string(&log).unwrap_or_default()).map(drop)
}

fn wire_cgroup(host: &Host, port: &str) -> Result<crate::cgroup::Cgroup> {
    Ok(host.lab.cgroup()?.child(&format!("wire-{port}")))
}

/// The name under which a slow port is on the bridge.
pub(crate) fn bridge_end(port: &str) -> String {
    format!("w{port}")
}
