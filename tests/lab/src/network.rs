//! The wires of the lab: one switch in a network namespace of its own, on which every host has a port and the operator
//! has an address. Nothing on the machine itself changes, but for that one interface.

use std::{
    fs,
    net::Ipv4Addr,
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use crate::{
    cgroup::Cgroup,
    command::{command, feed, run},
    keeper,
};

/// The bridge inside the switch.
pub(crate) const LAN: &str = "lan";

/// The operator's port on it.
pub(crate) const OPERATOR: &str = "operator";

/// Addresses of a lab: 10.86.N.0/24, with the operator at .1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subnet(pub(crate) u8);

impl Subnet {
    pub fn address(self, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 86, self.0, number)
    }

    pub fn operator(self) -> Ipv4Addr {
        self.address(1)
    }

    /// The first one that this machine has no route to yet.
    pub(crate) fn unused() -> Result<Self> {
        let routes = run(&mut command("ip", ["-4", "route", "show", "table", "all"]))?;
        let used = |number: &u8| routes.contains(&format!("10.86.{number}."));
        let free = (0..=255).find(|number| !used(number));
        free.map(Self).context("this machine has routes to all of 10.86.0.0/16, so there is no address range for a lab")
    }
}

/// The namespace with the bridge, alive as long as its one process.
pub(crate) struct Switch {
    pid: Pid,
}

impl Switch {
    /// The switch of a lab that is up.
    pub(crate) fn find(cgroup: &Cgroup) -> Result<Option<Self>> {
        // Its process is in our own network for its first moments, and nobody may take that for the switch.
        let own = fs::read_link("/proc/self/ns/net")?;
        let is_elsewhere = |pid: &Pid| network_name(*pid).is_some_and(|name| name != own);
        Ok(cgroup.child("switch").processes()?.into_iter().find(is_elsewhere).map(|pid| Self { pid }))
    }

    pub(crate) fn start(cgroup: &Cgroup, lab: &str, subnet: Subnet) -> Result<Self> {
        let mut holder = keeper::inside(
            &cgroup.child("switch"),
            ["unshare", "--net", "sh", "-c", "echo held; exec sleep infinity"],
        )?;
        // It outlives this program, so it must not hold on to our output: whoever reads that would wait for ever.
        holder.stderr(Stdio::null());
        let pid = keeper::spawn_held(&mut holder)?.0;
        let switch = Self { pid };
        switch.ip(&format!(
            "link set lo up\n\
             link add {LAN} address 02:86:00:00:00:01 type bridge forward_delay 0 mcast_snooping 0\n\
             link set {LAN} addrgenmode none up\n"
        ))?;
        switch.connect_operator(lab, subnet)?;
        Ok(switch)
    }

    fn connect_operator(&self, lab: &str, subnet: Subnet) -> Result<()> {
        let pid = self.pid.as_raw_pid();
        let operator = subnet.operator();
        feed(
            &mut command("ip", ["-batch", "-"]),
            &format!(
                "link add {lab} type veth peer name {OPERATOR} netns {pid}\n\
                 link set {lab} addrgenmode none up\n\
                 addr add {operator}/24 dev {lab}\n"
            ),
        )?;
        self.ip(&format!("link set {OPERATOR} addrgenmode none master {LAN} up\n"))
    }

    /// Gives the namespace of this process an interface that hangs on this port.
    pub(crate) fn plug(&self, port: &str, host: Pid, interface: &str, mac: &str) -> Result<()> {
        self.unplug(port)?;
        let host = host.as_raw_pid();
        self.ip(&format!(
            "link add {port} type veth peer name {interface} address {mac} netns {host}\n\
             link set {port} addrgenmode none master {LAN} up\n"
        ))
    }

    /// Removes the port, if it is there, and the interface at its other end with it.
    pub(crate) fn unplug(&self, port: &str) -> Result<()> {
        let Err(error) = self.ip(&format!("link del {port}\n")) else { return Ok(()) };
        // It also goes by itself, a moment after the last process at its other end.
        let exists = self.inside("ip", &["link", "show", "dev", port]).output()?.status.success();
        if exists { Err(error) } else { Ok(()) }
    }

    /// Runs `ip` with these lines in the switch's namespace.
    pub(crate) fn ip(&self, lines: &str) -> Result<()> {
        feed(&mut self.inside("ip", &["-batch", "-"]), lines).map(drop)
    }

    /// A command in the switch's namespace.
    pub(crate) fn inside(&self, program: &str, args: &[&str]) -> Command {
        in_network_of(self.pid, program, args)
    }

    /// nsenter's option for the switch's namespace.
    pub(crate) fn namespace(&self) -> String {
        network_of(self.pid)
    }
}

fn network_name(pid: Pid) -> Option<PathBuf> {
    fs::read_link(format!("/proc/{}/ns/net", pid.as_raw_pid())).ok()
}

fn network_of(pid: Pid) -> String {
    format!("--net=/proc/{}/ns/net", pid.as_raw_pid())
}

/// A command of this machine, run in the network of a process.
pub(crate) fn in_network_of(pid: Pid, program: &str, args: &[&str]) -> Command {
    let namespace = network_of(pid);
    command("nsenter", [namespace.as_str(), "--", program].into_iter().chain(args.iter().copied()))
}

/// A lab's name is also that of the operator's interface.
pub(crate) fn check_free(lab: &str) -> Result<()> {
    if fs::exists(format!("/sys/class/net/{lab}"))? {
        bail!(
            "this machine has an interface called {lab} that is not the lab's; choose another name for the lab by --name"
        );
    }
    Ok(())
}
