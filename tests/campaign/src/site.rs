//! A cluster of a row, on hosts of the lab, with spare hosts beside it.

use std::{
    fs,
    net::IpAddr,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail, ensure};
use etcdrun_judge::{Cluster, Endpoint, Login, Tls};
use etcdrun_lab::{Borrowed, ETCD_VERSIONS, Host, Kind, Lab, etcd, write_inventory};

use crate::{
    operator::{Operator, Program},
    row::{Auth, ROOT_PASSWORD, Row, USER, USER_PASSWORD},
};

/// The cluster's name.
pub const CLUSTER: &str = "prod";
/// Hosts beside the members, for members that are added or move.
const SPARE: usize = 1;

pub struct Site {
    pub row: Row,
    pub lab: Lab,
    pub hosts: Vec<Borrowed>,
    pub operator: Operator,
    /// The minor version that the inventory wants.
    pub version: String,
}

/// A member as the inventory has it, and its host.
#[derive(Clone)]
pub struct Member {
    pub name: String,
    pub host: Host,
}

impl Site {
    /// Hosts, and an inventory of them; nothing is played.
    pub fn new(row: &Row, folder: &Path, program: &Program, lab: Lab) -> Result<Self> {
        let hosts = lab.borrow(Kind::Fast, row.members + SPARE)?;
        let operator = Operator::new(folder, program)?;
        let named: Vec<Host> = hosts.iter().map(|host| (**host).clone()).collect();
        write_inventory(&lab, &named, folder)?;
        let text = operator.read("inventory.yaml")?;
        let (ssh, _) = text.split_once("\nhosts:").context("the lab's inventory has no hosts")?;
        let mut releases = String::new();
        for minor in ETCD_VERSIONS {
            let server = etcd(minor)?;
            let line = format!(
                "  {}: {{ file: {}, sha256: {} }}\n",
                server.version,
                server.path.display(),
                sum_of(&server.path)?
            );
            releases.push_str(&line);
        }
        let entry = |host: &Borrowed| format!("      {}: {{ address: {} }}\n", host.name(), host.address());
        let members: String = hosts.iter().take(row.members).map(entry).collect();
        let sections = row.sections(&etcd(&row.version)?.version);
        operator.write(
            "inventory.yaml",
            &format!("{ssh}\netcd_releases:\n{releases}clusters:\n  {CLUSTER}:\n{sections}    members:\n{members}"),
        )?;
        Ok(Self { row: row.clone(), lab, hosts, operator, version: row.version.clone() })
    }

    /// The members that the inventory has now.
    pub fn members(&mut self) -> Result<Vec<Member>> {
        let list = self.operator.must(&["inventory", "list", "--json", "--limit", CLUSTER])?.json()?;
        let hosts = list["_meta"]["hostvars"].as_object().context("there are no hosts")?;
        let mut members = Vec::new();
        for (name, vars) in hosts {
            let address = vars["ansible_host"].as_str().unwrap_or_default();
            let host = self.hosts.iter().find(|host| host.address().to_string() == address);
            let host = host.with_context(|| format!("{name} has the address {address}, which no host has"))?;
            members.push(Member { name: name.clone(), host: (**host).clone() });
        }
        members.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(members)
    }

    /// Hosts that no member has.
    pub fn spare(&mut self) -> Result<Vec<Host>> {
        let members = self.members()?;
        let is_free = |host: &&Borrowed| !members.iter().any(|member| member.host.name() == host.name());
        Ok(self.hosts.iter().filter(is_free).map(|host| (**host).clone()).collect())
    }

    /// How the judge reaches the cluster, as its own user.
    pub fn as_user(&mut self) -> Result<Cluster> {
        let login = Login { user: USER.to_owned(), password: USER_PASSWORD.to_owned() };
        self.cluster(if self.row.auth == Auth::Certificate { USER } else { "root" }, login)
    }

    /// The same as root, who alone may ask for hashes.
    pub fn as_root(&mut self) -> Result<Cluster> {
        self.cluster("root", Login { user: "root".to_owned(), password: ROOT_PASSWORD.to_owned() })
    }

    fn cluster(&mut self, certificate_of: &str, login: Login) -> Result<Cluster> {
        let endpoints = self
            .members()?
            .into_iter()
            .map(|member| Endpoint::new(&member.name, IpAddr::V4(member.host.address()), self.row.client_port()));
        let endpoints = endpoints.collect();
        if self.row.auth == Auth::Password {
            let ca_pem = self.operator.read(&format!(".etcdrun/pki/{CLUSTER}/ca.crt"))?;
            let tls = Tls { ca_pem, certificate_pem: None, key_pem: None };
            return Ok(Cluster { endpoints, tls: Some(tls), login: Some(login) });
        }
        if certificate_of == USER && !self.operator.path(&format!(".etcdrun/pki/{CLUSTER}/clients/{USER}.crt")).exists()
        {
            self.operator.must(&["certs", "issue", USER])?;
        }
        let folder = format!("exported/{certificate_of}");
        self.operator.must(&["certs", "export", certificate_of, "--to", &folder])?;
        let read = |name: &str| self.operator.read(&format!("{folder}/{name}"));
        let tls = Tls {
            ca_pem: read("ca.crt")?,
            certificate_pem: Some(read(&format!("{certificate_of}.crt"))?),
            key_pem: Some(read(&format!("{certificate_of}.key"))?),
        };
        Ok(Cluster { endpoints, tls: Some(tls), login: None })
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
            let said = self.operator.run(&["status", CLUSTER, "--connect-timeout", "3"])?;
            if said.code == Some(0) {
                return Ok(());
            }
            if begun.elapsed() > limit {
                bail!("{CLUSTER} is not healthy after {limit:?}:\n{}", said.text);
            }
        }
    }

    /// What servers and hosts have said, for those who look into what happened.
    pub fn save_logs(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder)?;
        for host in &self.hosts {
            let log = host.run(&["journalctl", "-u", "etcd", "--no-pager", "-o", "short-precise"]);
            fs::write(folder.join(format!("{}.log", host.name())), log.unwrap_or_else(|error| format!("{error:#}")))?;
        }
        Ok(())
    }
}

fn sum_of(file: &Path) -> Result<String> {
    let output = std::process::Command::new("sha256sum").arg(file).output()?;
    let text = String::from_utf8(output.stdout)?;
    text.get(..64).map(str::to_owned).with_context(|| format!("sha256sum says nothing of {}", file.display()))
}
