//! A cluster of real etcd on fast hosts of a lab of its own, made by `site.yaml`, and how it is asked.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use etcdrun::{
    etcd::Credential,
    model::Masker,
    secret::{KeyOptions, Keyring},
    source::{Opener as _, is_sealed},
};
use serde_json::Value;

use crate::{
    site::{Lab, etcdrun, lab, sum},
    works::Bench,
    writer,
};

/// Where there is room for much: the data disks of the lab are small.
pub const ROOMY: &str = "/srv/etcd/data";
pub const USUAL: &str = "/var/lib/etcd/data";
/// Where gaps between writes are measured. Hosts of their own have disks of their own; those of the lab share one with all
/// of this machine, and whoever syncs there holds up every member.
pub const IN_MEMORY: &str = "/run/disk/data";

/// What it is to be like.
#[derive(Clone, Copy)]
pub struct Wanted<'a> {
    pub members: usize,
    /// Of servers; it begins with the first.
    pub minors: &'a [&'a str],
    pub auth: bool,
    pub data_dir: &'static str,
    /// More of the section `etcd`: `, KEY: VALUE`.
    pub settings: &'a str,
}

pub struct Cluster {
    pub folder: PathBuf,
    /// Names and addresses.
    pub members: Vec<(String, String)>,
    pub releases: Vec<Release>,
    pub data_dir: &'static str,
    pub lab: Lab,
}

pub struct Release {
    pub version: String,
    pub file: String,
    pub sum: String,
}

pub fn release(minor: &str) -> Result<Release> {
    let said = lab(&["etcd", minor])?;
    let (version, file) = said.trim().split_once(' ').context("where etcd is")?;
    Ok(Release { version: version.to_owned(), sum: sum(file)?, file: file.to_owned() })
}

impl Release {
    /// A line of `etcd_releases`.
    pub fn entry(&self) -> String {
        let Self { version, file, sum } = self;
        format!("  {version}: {{ file: {file}, sha256: {sum} }}\n")
    }
}

impl Cluster {
    /// Hosts, and an inventory in a folder of this name.
    pub fn prepare(bench: &Bench, name: &str, wanted: Wanted<'_>) -> Result<Self> {
        let lab = Lab::up(&["--hypervisors", "0", "--hosts", &wanted.members.to_string()])?;
        let folder = bench.folder.join(name);
        fs::create_dir_all(&folder)?;
        let members = lab.hosts()?;
        let releases = wanted.minors.iter().map(|minor| release(minor)).collect::<Result<_>>()?;
        let cluster = Self { members, lab, folder, releases, data_dir: wanted.data_dir };
        cluster.wants(wanted, 0)?;
        Ok(cluster)
    }

    /// The same, from nothing to serving.
    pub fn make(bench: &Bench, name: &str, wanted: Wanted<'_>) -> Result<Self> {
        let cluster = Self::prepare(bench, name, wanted)?;
        etcdrun(bench, &cluster.folder, &["playbook", "site.yaml"])?;
        Ok(cluster)
    }

    /// The inventory wants one of the versions, and knows all of them.
    pub fn wants(&self, wanted: Wanted<'_>, place: usize) -> Result<()> {
        let lab = self.lab.inventory()?;
        let (ssh, hosts) = lab.split_once("hosts:\n").context("hosts of the lab")?;
        let members: String = hosts.lines().map(|line| format!("    {line}\n")).collect();
        let releases: String = self.releases.iter().map(Release::entry).collect();
        let (version, Wanted { data_dir, settings, auth, .. }) = (&self.releases[place].version, wanted);
        let text = format!(
            "{ssh}etcd_releases:\n{releases}clusters:\n  prod:\n    etcd: {{ version: {version}, data_dir: {data_dir}{settings} }}\n    auth: {{ enabled: {auth} }}\n    members:\n{members}"
        );
        Ok(fs::write(self.folder.join("inventory.yaml"), text)?)
    }

    /// What proves that one is root of it.
    pub fn credential(&self) -> Result<Credential> {
        credential(&self.folder)
    }

    /// Root's key as other programs read it.
    pub fn root_key(&self) -> Result<PathBuf> {
        let path = self.folder.join("root.key");
        fs::write(&path, opened(&self.folder, "clients/root.key")?)?;
        Ok(path)
    }

    pub fn pki(&self, name: &str) -> PathBuf {
        pki(&self.folder, name)
    }

    /// etcdctl on this machine, as root of the cluster, with these members as endpoints.
    pub fn etcdctl(&self, members: &[(String, String)]) -> Result<Command> {
        let endpoints: Vec<String> = members.iter().map(|(_, ip)| format!("https://{ip}:2379")).collect();
        let mut command = Command::new(etcdctl()?);
        command.args(["--endpoints", &endpoints.join(","), "--dial-timeout", "3s", "--command-timeout", "600s"]);
        command.arg("--cacert").arg(self.pki("ca.crt"));
        command.arg("--cert").arg(self.pki("clients/root.crt")).arg("--key").arg(self.root_key()?);
        Ok(command)
    }

    /// Nothing of what a client wrote is left.
    pub fn clear(&self) -> Result<()> {
        let removed = self.etcdctl(&self.members)?.args(["del", "--prefix", writer::PREFIX]).output()?;
        ensure!(removed.status.success(), "del: {}", String::from_utf8_lossy(&removed.stderr));
        Ok(())
    }

    /// What members answer to a question of `etcdctl endpoint`, each under its address.
    pub fn asked(&self, members: &[(String, String)], question: &str) -> Result<Vec<Value>> {
        let output = self.etcdctl(members)?.args(["endpoint", question, "--write-out", "json"]).output()?;
        let said = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "endpoint {question}: {said}{}", String::from_utf8_lossy(&output.stderr));
        Ok(serde_json::from_str(said.trim())?)
    }
}

/// The etcdctl of the lab.
pub fn etcdctl() -> Result<PathBuf> {
    Ok(Path::new(lab(&["tools"])?.trim()).join("etcdctl"))
}

/// What proves that one is root of the cluster of a folder.
pub fn credential(folder: &Path) -> Result<Credential> {
    let pem = |name: &str| opened(folder, name);
    let identity = Some((pem("clients/root.crt")?, pem("clients/root.key")?.into()));
    Ok(Credential { authority: pem("ca.crt")?, identity, login: None })
}

/// The text of a file that may be encrypted to the operator.
fn opened(folder: &Path, name: &str) -> Result<String> {
    let bytes = fs::read(pki(folder, name))?;
    if !is_sealed(&bytes) {
        return Ok(String::from_utf8(bytes)?);
    }
    let identities = vec![folder.join(".config/etcdrun/identity")];
    let keyring = Keyring::new(KeyOptions { identities, ..KeyOptions::default() }, Masker::default());
    let opened = keyring.open(&bytes).map_err(|error| anyhow!("{name}: {}", error.message))?;
    Ok(String::from_utf8(opened.to_vec())?)
}

fn pki(folder: &Path, name: &str) -> PathBuf {
    folder.join(".etcdrun/pki/prod").join(name)
}
