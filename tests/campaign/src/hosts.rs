//! What the hosts of a row have that those of the lab have not: other shells, logins, ports and addresses, and services beside them.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{IpAddr, Ipv6Addr, TcpStream},
    process::Command,
};

use anyhow::{Context, Result, ensure};
use etcdrun_lab::{Host, Lab, etcd};

use crate::row::{Addresses, DATA_DEVICE, Disk, Row, SSH_PORT, SUDO_PASSWORD, Shell, Ssh};

/// The domain of members that are found by its records.
pub const DOMAIN: &str = "prod.test";
/// Where hosts have mounted their disk.
const MOUNT: &str = "/var/lib/etcd";

/// Where a host is reached in a row.
pub fn address(row: &Row, host: &Host) -> IpAddr {
    match row.addresses {
        Addresses::V4 => IpAddr::V4(host.address()),
        Addresses::V6 => IpAddr::V6(v6(host.address().octets())),
    }
}

/// The address with the same numbers.
fn v6([_, second, third, last]: [u8; 4]) -> Ipv6Addr {
    Ipv6Addr::new(0xfd00 | u16::from(second), 0, 0, u16::from(third), 0, 0, 0, u16::from(last))
}

/// Gives the operator an address that hosts of the row reach.
pub fn prepare_operator(row: &Row, lab: &Lab) -> Result<()> {
    if row.addresses == Addresses::V6 {
        let own = format!("{}/64", v6(lab.subnet().operator().octets()));
        let status = Command::new("ip").args(["-6", "addr", "replace", &own, "dev", lab.name(), "nodad"]).status()?;
        ensure!(status.success(), "the operator could not be given the address {own}");
    }
    Ok(())
}

/// Lets the operator reach none of these by SSH, or all of them again. The clients of the judge, who are on the same machine, still do.
pub fn cut_operator(lab: &Lab, addresses: &[IpAddr]) -> Result<()> {
    lab.cut_operator(addresses, &[22, SSH_PORT])
}

/// Gives a host its address.
pub fn connect(row: &Row, host: &Host) -> Result<()> {
    match row.addresses {
        Addresses::V4 => Ok(()),
        Addresses::V6 => {
            let own = format!("{}/64", address(row, host));
            at_boot(host, "address", &format!("ip -6 addr replace {own} dev eth0 nodad"))
        }
    }
}

/// Runs a script, now and whenever the host starts.
fn at_boot(host: &Host, name: &str, script: &str) -> Result<()> {
    let path = format!("/usr/local/sbin/campaign-{name}");
    let awaited = "for _ in $(seq 100); do ip link show eth0 >/dev/null 2>&1 && break; sleep 0.1; done";
    fs::write(host.path(&path)?, format!("#!/bin/bash\n{awaited}\n{script}\n"))?;
    let unit = format!(
        "[Unit]\nBefore=ssh.service etcd.service\n\n[Service]\nType=oneshot\nExecStart=/bin/bash {path}\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    );
    fs::write(host.path(&format!("/etc/systemd/system/campaign-{name}.service"))?, unit)?;
    let enable = format!("systemctl daemon-reload && systemctl enable --now campaign-{name}.service");
    host.run(&["sh", "-c", &enable]).map(drop)
}

pub fn prepare(row: &Row, lab: &Lab, host: &Host) -> Result<()> {
    if row.disk == Disk::Device {
        // There is no udev, and systemd mounts no devices in a container.
        let device = format!("[ -e {DATA_DEVICE} ] || mknod {DATA_DEVICE} b $(mountpoint -d {MOUNT} | tr : ' ')");
        let mount = format!("umount {MOUNT}\n! grep -q '^{DATA_DEVICE} ' /etc/fstab || mount {MOUNT}");
        at_boot(host, "disk", &format!("{device}\n{mount}"))?;
    }
    let mut script = String::from("set -eu\n");
    match row.shell {
        Shell::Both => {}
        Shell::Bash => script += "ln -sf bash /usr/bin/sh; usermod -s /bin/bash root; usermod -s /bin/bash ops\n",
        Shell::Dash => script += "ln -sf dash /usr/bin/sh; usermod -s /bin/dash root; usermod -s /bin/dash ops\n",
        Shell::Busybox => {
            fs::copy("/bin/busybox", host.path("/usr/bin/busybox")?)?;
            script += "ln -sf busybox /usr/bin/sh; usermod -s /bin/sh root; usermod -s /bin/sh ops\n";
        }
    }
    match row.ssh {
        Ssh::Root => {}
        Ssh::Sudo => {
            script += &format!(
                "echo 'ops ALL=(ALL:ALL) ALL' >/etc/sudoers.d/ops; echo 'ops:{SUDO_PASSWORD}' | chpasswd\n\
                 install -d -o ops -g ops -m 0700 /home/ops/.ssh\n\
                 install -o ops -g ops -m 0600 /root/.ssh/authorized_keys /home/ops/.ssh/; rm /root/.ssh/authorized_keys\n"
            );
        }
        Ssh::Port => {
            script += &format!(
                "printf 'Port 22\\nPort {SSH_PORT}\\n' >/etc/ssh/sshd_config.d/port.conf; systemctl restart ssh\n"
            );
        }
        Ssh::Jump => {
            let operator = lab.subnet().operator();
            let refuse = "-A INPUT -p tcp --dport 22 -j REJECT -s";
            let rules = format!("iptables {refuse} {operator}; ip6tables {refuse} {}", v6(operator.octets()));
            at_boot(host, "firewall", &rules)?;
        }
    }
    host.run(&["bash", "-c", &script]).map(drop)
}

/// A name server for the members of a cluster; its domain knows them as `DOMAIN`, which is also what others must be told.
pub fn start_names(server: &Host, row: &Row, members: &[&Host]) -> Result<()> {
    let listen = format!("--listen-address={}", server.address());
    let start = ["systemd-run", "--unit=names", "dnsmasq", "--keep-in-foreground", "--no-hosts", "--no-resolv"];
    let records = members.iter().flat_map(|host| {
        let (name, port) = (host.name(), row.peer_port());
        let record = format!("--host-record={name}.{DOMAIN},{}", address(row, host));
        [record, format!("--srv-host=_etcd-server-ssl._tcp.{DOMAIN},{name}.{DOMAIN},{port}")]
    });
    let records: Vec<String> = records.collect();
    let records: Vec<&str> = records.iter().map(String::as_str).collect();
    server.run(&[&start[..], &["--conf-file=/dev/null", "--bind-interfaces", &listen], &records].concat())?;
    let listens = format!(
        "for _ in $(seq 100); do ss -lun | grep -qF '{}:53 ' && exit; sleep 0.1; done; exit 1",
        server.address()
    );
    server.run(&["sh", "-c", &listens]).context("the name server does not listen")?;
    for host in members {
        fs::write(host.path("/etc/resolv.conf")?, format!("nameserver {}\n", server.address()))?;
    }
    Ok(())
}

/// Starts a service for discovery on a host, as etcd's own was, for so many members. Its URL.
pub fn start_discovery(host: &Host, members: usize) -> Result<String> {
    fs::copy(etcd("3.5")?.path, host.path("/usr/local/bin/discovery")?)?;
    let service = format!("http://{}:2379", host.address());
    let listen = [format!("--listen-client-urls={service}"), format!("--advertise-client-urls={service}")];
    let start = ["systemd-run", "--unit=discovery", "-p", "Type=notify", "/usr/local/bin/discovery", "--enable-v2"];
    host.run(&[&start[..], &["--data-dir=/var/tmp/discovery", &listen[0], &listen[1]]].concat())?;
    let body = format!("value={members}");
    let head = "Host: discovery\r\nContent-Type: application/x-www-form-urlencoded\r\nConnection: close";
    let path = "/v2/keys/clusters/one";
    let mut connection = TcpStream::connect((host.address(), 2379))?;
    let length = body.len();
    write!(connection, "PUT {path}/_config/size HTTP/1.1\r\n{head}\r\nContent-Length: {length}\r\n\r\n{body}")?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    ensure!(answer.contains(" 201 "), "the service for discovery says: {answer}");
    Ok(format!("{service}{path}"))
}
