//! A cluster of a row, on hosts of the lab, with spare hosts beside it.

use std::{
    collections::HashMap,
    fs,
    io::{Read as _, Write as _},
    net::IpAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use etcdrun_judge::{Cluster, Endpoint, Login, Tls};
use etcdrun_lab::{Borrowed, ETCD_VERSIONS, Host, Kind, Lab, etcd, etcd_tools, write_inventory};

use crate::{
    adopted, authority,
    hosts::{self, DOMAIN},
    machine::{self, Inside},
    operator::{Operator, Program},
    row::{
        Auth, Ca, Data, Discovery, Origin, Patch, ROOT_PASSWORD, Row, SSH_PORT, SUDO_PASSWORD, Ssh, USER, USER_PASSWORD,
    },
};

/// The cluster's name.
pub const CLUSTER: &str = "prod";
/// What the refusal of a new member during a downgrade advises.
pub const CANCEL: &str = "downgrade-cancel.yaml";
/// A second cluster, for backups of the first.
pub const COPY: &str = "copy";
/// Its inventory.
pub const COPY_INVENTORY: &str = "copy.yaml";
/// Hosts beside the members, for members that are added or move.
const SPARE: usize = 1;
/// What is written where there shall be some data: so many values of so many bytes, twice as many in hexadecimal.
const VALUES: usize = 24;
const MANY_VALUES: usize = 1024;
/// How large a disk must be for those. A member that is restored has the data twice for a while, and the log.
const LARGE_DISK: &str = "8G";
const VALUE: usize = 500_000;

pub struct Site {
    pub row: Row,
    pub lab: Lab,
    pub hosts: Vec<Borrowed>,
    pub operator: Operator,
    /// The release that the inventory wants, as the lab calls it.
    pub version: String,
    /// The jump host, and the services for discovery.
    _helpers: [Option<Borrowed>; 2],
    /// How often the passwords were changed.
    password_changes: u32,
    /// The number of the CA that the inventory names, where it names one.
    pub ca: u32,
    /// What each user had last, for the time in which the cluster is destroyed.
    credentials: HashMap<String, Tls>,
    /// The hypervisors that guests were last seen on.
    homes: HashMap<String, Host>,
}

/// A member as the inventory has it, and what it runs on.
#[derive(Clone)]
pub struct Member {
    pub name: String,
    /// Its host, or the hypervisor of its guest.
    pub host: Host,
    pub guest: Option<Inside>,
    pub address: IpAddr,
    pub data_dir: &'static str,
}

impl Member {
    /// A command where its server runs.
    pub fn run(&self, words: &[&str]) -> Result<String> {
        match &self.guest {
            Some(guest) => guest.run(words),
            None => self.host.run(words),
        }
    }
}

impl Site {
    /// Hosts, and an inventory of them; nothing is played.
    pub fn new(row: &Row, folder: &Path, program: &Program, lab: Lab) -> Result<Self> {
        let has_helper = row.ssh == Ssh::Jump || row.discovery == Discovery::Url;
        let count = row.members + SPARE + usize::from(has_helper);
        let mut hosts = match row.data {
            _ if row.machines.are_guests() => lab.borrow(Kind::Hypervisor, count)?,
            Data::Huge => lab.borrow_with_disks(Kind::Fast, count, LARGE_DISK)?,
            Data::Small | Data::Large => lab.borrow(Kind::Fast, count)?,
        };
        // Only hypervisors have the program for it.
        let names = match row.discovery {
            Discovery::Srv => lab.borrow(Kind::Hypervisor, 1)?.pop(),
            _ => None,
        };
        let mut operator = Operator::new(folder, program)?;
        let named: Vec<Host> = hosts.iter().map(|host| (**host).clone()).collect();
        let helper = if has_helper { hosts.pop() } else { None };
        hosts::prepare_operator(row, &lab)?;
        for host in &named {
            hosts::connect(row, host)?;
        }
        for host in hosts.iter().filter(|_| !row.machines.are_guests()) {
            hosts::prepare(row, &lab, host)?;
        }
        write_inventory(&lab, &named, folder)?;
        operator.write("known_hosts", &known_hosts(row, &named, &operator.read("known_hosts")?)?)?;
        let mut text = String::from("ssh:") + &ssh_of(row, &operator)?;
        if let Some(helper) = helper.as_ref().filter(|_| row.ssh == Ssh::Jump) {
            // It has no other address, and no other way to it.
            text += &format!("hosts:\n  jump: {{ address: {}, ssh: {{ jump: none }} }}\n", helper.address());
        }
        text += "etcd_releases:\n";
        let release = row.release()?;
        for known in ETCD_VERSIONS.iter().chain(Some(&release).filter(|_| row.patch != Patch::Newest)) {
            let server = etcd(known)?;
            let (version, file, sum) = (server.version, server.path.display(), sum_of(&server.path)?);
            text += &format!("  {version}: {{ file: {file}, sha256: {sum} }}\n");
        }
        if row.origin == Origin::Adopted {
            adopted::make(row, &hosts[..row.members], &mut operator, &text)?;
        } else if row.machines.are_guests() {
            let hypervisors: Vec<&Host> = hosts.iter().map(|host| &**host).collect();
            let (section, members) = machine::describe(row, &lab, &hypervisors)?;
            let sections = Self::sections(row, &operator, &hosts, [&None, &None])? + &section;
            text += &hypervisors_of(&operator)?;
            text += &format!("clusters:\n  {CLUSTER}:\n{sections}    members:\n{members}");
            operator.write("inventory.yaml", &text)?;
        } else {
            let sections = Self::sections(row, &operator, &hosts, [&helper, &names])?;
            let entry =
                |host: &Borrowed| format!("      {}: {{ address: \"{}\" }}\n", host.name(), hosts::address(row, host));
            let members: String = hosts.iter().take(row.members).map(entry).collect();
            text += &format!("clusters:\n  {CLUSTER}:\n{sections}    members:\n{members}");
            operator.write("inventory.yaml", &text)?;
        }
        Ok(Self {
            row: row.clone(),
            lab,
            hosts,
            operator,
            version: release.to_owned(),
            _helpers: [helper, names],
            password_changes: 0,
            ca: 1,
            credentials: HashMap::new(),
            homes: HashMap::new(),
        })
    }

    /// Creates the cluster, or takes over the one that was adopted.
    pub fn form(&mut self) -> Result<()> {
        let is_adopted = self.row.origin == Origin::Adopted;
        self.play_site(is_adopted)?;
        let first = adopted::first(&self.row);
        if is_adopted && first.auth != self.row.auth {
            self.edit(&first.auth_section(0), &self.row.auth_section(0))?;
            self.play_site(true)?;
        }
        if is_adopted {
            let output = (self.etcdctl()?)().args(["get", "--print-value-only", adopted::KEY]).output()?;
            let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
            ensure!(said.trim() == adopted::VALUE, "what the adopted cluster had is gone; etcdctl says: {said}");
        }
        Ok(())
    }

    fn play_site(&mut self, restarts_members: bool) -> Result<()> {
        if restarts_members && self.row.members < 3 {
            // Refused, since a member has to restart. The refusal says what accepts that.
            let said = self.operator.run(&["playbook", "site.yaml"])?;
            ensure!(said.code == Some(3), "a restart of a small cluster was not refused:\n{}", said.text);
            let consent = ["playbook", "settings.yaml", "-l", CLUSTER, "-e", "rollout_allow_outage=true"];
            ensure!(
                said.text.contains(&format!("to accept that, run `etcdrun {}`", consent.join(" "))),
                "{}",
                said.text
            );
            self.operator.must(&consent)?;
        }
        self.operator.must(&["playbook", "site.yaml"]).map(drop)
    }

    /// What the inventory says of the cluster before its members.
    fn sections(row: &Row, operator: &Operator, hosts: &[Borrowed], helpers: [&Option<Borrowed>; 2]) -> Result<String> {
        let [helper, names] = helpers;
        let mut sections = row.sections(&etcd(row.release()?)?.version, 0);
        if let Some(helper) = helper.as_ref().filter(|_| row.discovery == Discovery::Url) {
            let url = hosts::start_discovery(helper, row.members)?;
            sections = sections.replacen("etcd:\n", &format!("etcd:\n      discovery: {{ url: \"{url}\" }}\n"), 1);
        }
        let mut tls = Vec::new();
        if let Some(server) = names {
            let members: Vec<&Host> = hosts.iter().take(row.members).map(|host| &**host).collect();
            hosts::start_names(server, row, &members)?;
            sections = sections.replacen("etcd:\n", &format!("etcd:\n      discovery: {{ dns_srv: {DOMAIN} }}\n"), 1);
            tls.push(format!("names: [\"*.{DOMAIN}\"]"));
        }
        if row.ca != Ca::Made {
            tls.push(format!("ca: {{ {} }}", authority::make(operator, row.ca, 1)?));
        }
        if !tls.is_empty() {
            sections += &format!("    tls: {{ {} }}\n", tls.join(", "));
        }
        Ok(sections)
    }

    /// Where a host is reached.
    pub fn address(&self, host: &Host) -> IpAddr {
        hosts::address(&self.row, host)
    }

    /// The members that the inventory has now.
    pub fn members(&mut self) -> Result<Vec<Member>> {
        let list = self.operator.must(&["inventory", "list", "--json", "--limit", CLUSTER])?.json()?;
        let hosts = list["_meta"]["hostvars"].as_object().context("there are no hosts")?;
        let mut members = Vec::new();
        for (name, vars) in hosts {
            let address = vars["ansible_host"].as_str().unwrap_or_default();
            if self.row.machines.are_guests() {
                members.push(self.guest(name, address.parse()?)?);
                continue;
            }
            let host = self.hosts.iter().find(|host| self.address(host).to_string() == address);
            let host = host.with_context(|| format!("{name} has the address {address}, which no host has"))?;
            members.push(Member {
                name: name.clone(),
                host: (**host).clone(),
                guest: None,
                address: self.address(host),
                data_dir: self.row.data_dir(),
            });
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(members)
    }

    /// A member in a guest, on the hypervisor that has it, or had it when it was last up.
    fn guest(&mut self, name: &str, address: IpAddr) -> Result<Member> {
        let has = |host: &&Borrowed| {
            let domains = host.run(&["virsh", "-q", "list", "--all", "--name"]).unwrap_or_default();
            domains.lines().any(|domain| domain.trim() == name)
        };
        if let Some(host) = self.hosts.iter().find(has) {
            self.homes.insert(name.to_owned(), (**host).clone());
        }
        // One that is still to be made has no hypervisor yet.
        let host = self.homes.get(name).cloned().or_else(|| self.hosts.first().map(|host| (**host).clone()));
        Ok(Member {
            name: name.to_owned(),
            host: host.context("there are no hypervisors")?,
            guest: Some(Inside::new(&self.lab, name, address).context("a guest has no IPv4 address")?),
            address,
            data_dir: self.row.data_dir(),
        })
    }

    /// Hosts that no member has.
    pub fn spare(&mut self) -> Result<Vec<Host>> {
        let members = self.members()?;
        let is_free = |host: &&Borrowed| !members.iter().any(|member| member.host.name() == host.name());
        Ok(self.hosts.iter().filter(is_free).map(|host| (**host).clone()).collect())
    }

    /// How the judge reaches the cluster, as its own user.
    pub fn as_user(&mut self) -> Result<Cluster> {
        let password = Row::password(USER_PASSWORD, self.password_changes);
        let login = Login { user: USER.to_owned(), password };
        self.cluster(if self.row.auth == Auth::Certificate { USER } else { "root" }, login)
    }

    /// The same as root, who alone may ask for hashes.
    pub fn as_root(&mut self) -> Result<Cluster> {
        let password = Row::password(ROOT_PASSWORD, self.password_changes);
        self.cluster("root", Login { user: "root".to_owned(), password })
    }

    fn cluster(&mut self, certificate_of: &str, login: Login) -> Result<Cluster> {
        self.name_new_ca()?;
        let port = self.row.client_port();
        let members = self.members()?;
        let endpoints = members.iter().map(|member| Endpoint::new(&member.name, member.address, port));
        let endpoints = endpoints.collect();
        // One that is destroyed has no certificates, and is not reached with those that it had.
        let is_there = self.operator.path(&format!(".etcdrun/clusters/{CLUSTER}.json")).exists();
        let tls = match self.credentials.get(certificate_of) {
            Some(last) if !is_there => last.clone(),
            _ => self.tls(certificate_of)?,
        };
        self.credentials.insert(certificate_of.to_owned(), tls.clone());
        Ok(Cluster { endpoints, tls: Some(tls), login: (self.row.auth == Auth::Password).then_some(login) })
    }

    fn tls(&mut self, certificate_of: &str) -> Result<Tls> {
        if self.row.auth == Auth::Password {
            let ca_pem = self.operator.read(&format!(".etcdrun/pki/{CLUSTER}/ca.crt"))?;
            return Ok(Tls { ca_pem, certificate_pem: None, key_pem: None });
        }
        let issued = format!(".etcdrun/pki/{CLUSTER}/clients/{USER}.crt");
        if certificate_of == USER && !self.operator.path(&issued).exists() {
            self.operator.must(&["certs", "issue", USER])?;
        }
        let folder = format!("exported/{certificate_of}");
        self.operator.must(&["certs", "export", certificate_of, "--to", &folder])?;
        let read = |name: &str| self.operator.read(&format!("{folder}/{name}"));
        Ok(Tls {
            ca_pem: read("ca.crt")?,
            certificate_pem: Some(read(&format!("{certificate_of}.crt"))?),
            key_pem: Some(read(&format!("{certificate_of}.key"))?),
        })
    }

    /// Names the CA that is next, where the inventory names one, so that it can be rotated to.
    pub fn wants_new_ca(&mut self) -> Result<()> {
        if self.row.ca == Ca::Made {
            return Ok(());
        }
        let old = authority::entry(&self.operator, self.row.ca, self.ca);
        let new = authority::make(&self.operator, self.row.ca, self.ca + 1)?;
        self.edit(&format!("ca: {{ {old} }}"), &format!("ca: {{ {old}, next: {{ {new} }} }}"))?;
        self.ca += 1;
        Ok(())
    }

    /// After the last phase of a rotation, a person puts the new CA in the place of the old one.
    fn name_new_ca(&self) -> Result<()> {
        let Ok(text) = self.operator.read(&format!(".etcdrun/pki/{CLUSTER}/rotation.json")) else { return Ok(()) };
        let rotation: serde_json::Value = serde_json::from_str(&text)?;
        let inventory = self.operator.read("inventory.yaml")?;
        if self.row.ca != Ca::Made
            && rotation["phase"] == "finish"
            && rotation["complete"] == true
            && inventory.contains(", next: {")
        {
            let old = authority::entry(&self.operator, self.row.ca, self.ca - 1);
            let new = authority::entry(&self.operator, self.row.ca, self.ca);
            self.edit(&format!("ca: {{ {old}, next: {{ {new} }} }}"), &format!("ca: {{ {new} }}"))?;
        }
        Ok(())
    }

    /// The inventory wants other passwords.
    pub fn wants_new_passwords(&mut self) -> Result<()> {
        for first in [ROOT_PASSWORD, USER_PASSWORD] {
            let [old, new] = [0, 1].map(|more| Row::password(first, self.password_changes + more));
            self.edit(&format!("password: {old}"), &format!("password: {new}"))?;
        }
        self.password_changes += 1;
        Ok(())
    }

    /// An inventory of another cluster like this one, on a host that has no member. Nothing if there is none.
    pub fn describe_copy(&mut self) -> Result<bool> {
        let spare = if self.row.machines.are_guests() { None } else { self.spare()?.into_iter().next() };
        let Some(host) = spare else { return Ok(false) };
        let text = self.operator.read("inventory.yaml")?;
        let (head, cluster) = text.split_once("clusters:\n").context("the inventory has no clusters")?;
        let (cluster, _) = cluster.split_once("    members:\n").context("the cluster has no members")?;
        let is_kept = |line: &&str| !line.trim_start().starts_with("discovery:");
        let sections: String = cluster.lines().skip(1).filter(is_kept).flat_map(|line| [line, "\n"]).collect();
        let member = format!("      {COPY}-1: {{ address: \"{}\" }}\n", self.address(&host));
        let copy = format!("{head}clusters:\n  {COPY}:\n{sections}    members:\n{member}");
        self.operator.write(COPY_INVENTORY, &copy)?;
        Ok(true)
    }

    /// Deletes what operations have moved aside, as a person does who is sure: the disks are small.
    pub fn tidy(&mut self) {
        let tidy = format!("rm -rf {}.*", self.row.data_dir());
        if self.row.machines.are_guests() {
            for member in self.members().unwrap_or_default() {
                drop(member.run(&["sh", "-c", &tidy]));
            }
            return;
        }
        for host in &self.hosts {
            drop(host.run(&["sh", "-c", &tidy]));
        }
    }

    pub fn cancel_downgrade(&mut self) -> Result<()> {
        self.operator.must(&["playbook", CANCEL]).map(drop)
    }

    /// Starts etcdctl as root, as often as wanted.
    fn etcdctl(&mut self) -> Result<impl Fn() -> Command + use<>> {
        let root = self.as_root()?;
        let (tls, endpoint) = (root.tls.context("there is no TLS")?, root.endpoints.first().context("no members")?);
        let url = format!("https://{}:{}", url_host(endpoint.ip), endpoint.port);
        self.operator.write("ca.pem", &tls.ca_pem)?;
        let program = etcd_tools()?.join("etcdctl");
        let path = |name: &str| self.operator.path(name).display().to_string();
        let identity = match &root.login {
            Some(login) => vec!["--user".to_owned(), format!("{}:{}", login.user, login.password)],
            None => ["--cert", &path("exported/root/root.crt"), "--key", &path("exported/root/root.key")]
                .map(str::to_owned)
                .to_vec(),
        };
        let ca = path("ca.pem");
        Ok(move || {
            let mut command = Command::new(&program);
            command.env("ETCDCTL_API", "3").args(["--endpoints", &url, "--cacert", &ca]).args(&identity);
            command
        })
    }

    /// Writes some data beside that of the judge.
    pub fn fill(&mut self) -> Result<()> {
        let etcdctl = self.etcdctl()?;
        for number in 0..if self.row.data == Data::Huge { MANY_VALUES } else { VALUES } {
            let mut command = etcdctl();
            command.args(["put", &format!("/filled/{number}")]).stdin(Stdio::piped()).stdout(Stdio::null());
            let mut child = command.spawn()?;
            let mut random = vec![0; VALUE];
            fs::File::open("/dev/urandom")?.read_exact(&mut random)?;
            let digits: Vec<u8> = random
                .iter()
                .flat_map(|byte| [byte >> 4, byte & 15])
                .map(|half| b"0123456789abcdef"[usize::from(half)])
                .collect();
            child.stdin.take().context("etcdctl has no stdin")?.write_all(&digits)?;
            ensure!(child.wait()?.success(), "etcdctl could not write");
        }
        Ok(())
    }

    /// Writes voters into the inventory that it does not have, as a person has to who gives up the run that added them.
    pub fn know_all_voters(&mut self) -> Result<()> {
        let program = etcd_tools()?.join("etcdctl").display().to_string();
        let list = ["etcdctl", CLUSTER, "--", "member", "list"];
        let said = self.operator.start(&list, &[("ETCDCTL_PROGRAM", &program)])?.wait()?;
        let known = self.members()?;
        for line in said.stdout.lines() {
            let words: Vec<&str> = line.split(", ").collect();
            let [_, "started", name, peer, _, "false"] = words[..] else { continue };
            let host = self.hosts.iter().find(|host| peer.contains(&format!("//{}:", url_host(self.address(host)))));
            if let Some(host) = host.filter(|_| !known.iter().any(|member| member.name == name)) {
                let text = self.operator.read("inventory.yaml")?;
                let line = format!("      {name}: {{ address: \"{}\" }}\n", self.address(host));
                let text = text.replacen("    members:\n", &format!("    members:\n{line}"), 1);
                self.operator.write("inventory.yaml", &text)?;
            }
        }
        Ok(())
    }

    /// Puts another text in place of one in the inventory, as a person with an editor would.
    pub fn edit(&self, old: &str, new: &str) -> Result<()> {
        let text = self.operator.read("inventory.yaml")?;
        ensure!(text.contains(old), "the inventory has no `{old}`");
        self.operator.write("inventory.yaml", &text.replace(old, new))
    }

    /// The inventory wants another version.
    pub fn wants(&mut self, minor: &str) -> Result<()> {
        let (from, to) = (etcd(&self.version)?.version, etcd(minor)?.version);
        self.edit(&format!("      version: {from}\n"), &format!("      version: {to}\n"))?;
        minor.clone_into(&mut self.version);
        Ok(())
    }

    /// Waits until `status` says that all is well.
    pub fn await_healthy(&mut self, limit: Duration) -> Result<()> {
        let begun = Instant::now();
        loop {
            let patience = if self.row.machines.are_guests() { "30" } else { "3" };
            let said = self.operator.run(&["status", CLUSTER, "--connect-timeout", patience])?;
            if said.code == Some(0) {
                return Ok(());
            }
            if begun.elapsed() > limit * self.row.machines.slowness() {
                bail!("{CLUSTER} is not healthy after {limit:?}:\n{}", said.text);
            }
        }
    }

    /// What servers and hosts have said, for those who look into what happened.
    pub fn save_logs(&mut self, folder: &Path) -> Result<()> {
        let command = ["journalctl", "-u", "etcd", "--no-pager", "-o", "short-precise"];
        let logs: Vec<(String, Result<String>)> = if self.row.machines.are_guests() {
            self.members()?.iter().map(|member| (member.name.clone(), member.run(&command))).collect()
        } else {
            self.hosts.iter().map(|host| (host.name().to_owned(), host.run(&command))).collect()
        };
        fs::create_dir_all(folder)?;
        for (name, log) in logs {
            fs::write(folder.join(format!("{name}.log")), log.unwrap_or_else(|error| format!("{error:#}")))?;
        }
        Ok(())
    }
}

/// What the inventory says about connections, below `ssh:`; and what belongs to that beside it.
fn ssh_of(row: &Row, operator: &Operator) -> Result<String> {
    let text = operator.read("inventory.yaml")?;
    let (_, ssh) = text.split_once("\nssh:").context("the lab's inventory has no connections")?;
    let ends = ["\nhosts:", "\nhypervisors:"].iter().filter_map(|end| ssh.find(end)).min();
    let ssh = &ssh[..ends.context("the lab's inventory has no hosts")?];
    let mut ssh = format!("{ssh}\n");
    match row.ssh {
        Ssh::Root => {}
        Ssh::Sudo => {
            ssh = ssh.replace("user: root", "user: ops\n  become: true");
            operator.write("sudo-password", SUDO_PASSWORD)?;
            fs::set_permissions(operator.path("sudo-password"), fs::Permissions::from_mode(0o600))?;
            operator.write("etcdrun.toml", "become_password_file = \"sudo-password\"\n")?;
        }
        Ssh::Port => ssh += &format!("  port: {SSH_PORT}\n"),
        Ssh::Jump => ssh += "  jump: [jump]\n",
    }
    Ok(ssh)
}

/// What the inventory says about hypervisors.
fn hypervisors_of(operator: &Operator) -> Result<String> {
    let text = operator.read("inventory.yaml")?;
    let (_, hypervisors) = text.split_once("\nhypervisors:").context("the lab's inventory has no hypervisors")?;
    let (hypervisors, _) = hypervisors.split_once("\nhosts:").unwrap_or((hypervisors, ""));
    Ok(format!("hypervisors:{hypervisors}\n"))
}

/// The keys of hosts, by what they are reached by in this row.
fn known_hosts(row: &Row, named: &[Host], lines: &str) -> Result<String> {
    let mut text = String::new();
    for host in named {
        let line = lines.lines().find(|line| line.starts_with(&format!("{},", host.name())));
        let (_, key) = line.and_then(|line| line.split_once(' ')).context("a host has no key")?;
        let addresses = [IpAddr::V4(host.address()), hosts::address(row, host)].map(|address| match row.ssh {
            Ssh::Port => format!("[{address}]:{SSH_PORT}"),
            _ => address.to_string(),
        });
        text += &format!("{} {key}\n", addresses.join(","));
    }
    Ok(text)
}

pub fn url_host(address: IpAddr) -> String {
    match address {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    }
}

fn sum_of(file: &Path) -> Result<String> {
    let output = std::process::Command::new("sha256sum").arg(file).output()?;
    let text = String::from_utf8(output.stdout)?;
    text.get(..64).map(str::to_owned).with_context(|| format!("sha256sum says nothing of {}", file.display()))
}
