//! One configuration: what a cluster is made of, in a word for each dimension.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

/// The password of root, where there are passwords. Like all others it must never be seen in an output.
pub const ROOT_PASSWORD: &str = "root-of-the-campaign";
pub const USER_PASSWORD: &str = "user-of-the-campaign";
/// For sudo. It has that of the user in it, so that a search for that finds this one, too.
pub const SUDO_PASSWORD: &str = "sudo-and-user-of-the-campaign";
/// The user of the judge, who may do everything below its prefix.
pub const USER: &str = "judge";
/// Where a host's sshd listens if that is not the usual port.
pub const SSH_PORT: u16 = 2222;
/// The disk that etcdrun mounts, where it does.
pub const DATA_DEVICE: &str = "/dev/etcd-data";

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Auth {
    Off,
    Certificate,
    Password,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ports {
    Usual,
    Others,
}

/// How far a log reaches before etcd makes a snapshot of it: with a short one, members that were away catch up by a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Log {
    Long,
    Short,
}

/// The addresses that hosts are reached by, and that members have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addresses {
    #[default]
    V4,
    V6,
}

/// How the hosts are logged into.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ssh {
    #[default]
    Root,
    /// As a user whose sudo asks for a password.
    Sudo,
    /// At another port.
    Port,
    /// By way of another host; they do not answer others.
    Jump,
}

/// Who signs certificates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ca {
    #[default]
    Made,
    /// The inventory names a certificate and its key.
    Brought,
    /// The inventory names a certificate, and a command that signs.
    Command,
}

/// What logins and scripts have on the hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shell {
    /// As the image has it: logins have bash, and `sh` is dash.
    #[default]
    Both,
    Bash,
    Dash,
    Busybox,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Data {
    #[default]
    Small,
    /// Some megabytes, so that a snapshot takes more than a moment.
    Large,
    /// A gigabyte.
    Huge,
}

/// How members find each other when the cluster is formed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Discovery {
    #[default]
    Inventory,
    /// By a service.
    Url,
    /// By the records of a domain.
    Srv,
}

/// Which release of the minor version it begins with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Patch {
    #[default]
    Newest,
    /// The oldest one that can be had.
    Old,
    /// The one that lets only root list members.
    Strict,
}

/// What the data is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disk {
    /// A disk of its own, which the host has mounted.
    #[default]
    Mounted,
    /// The root file system.
    Root,
    /// A disk of its own, which etcdrun mounts.
    Device,
}

/// Who has made the cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    #[default]
    Made,
    /// A person, by hand; etcdrun has adopted it.
    Adopted,
}

/// What its members run on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Machines {
    #[default]
    Hosts,
    /// Guests on the bridge of their hypervisor.
    Bridge,
    /// Guests on the network card of their hypervisor.
    Macvtap,
}

impl Machines {
    pub fn are_guests(self) -> bool {
        self != Self::Hosts
    }

    /// Emulated guests take so many times as long.
    pub fn slowness(self) -> u32 {
        if self.are_guests() { 5 } else { 1 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Row {
    /// The minor version that it begins with.
    pub version: String,
    pub members: usize,
    pub auth: Auth,
    pub ports: Ports,
    pub log: Log,
    #[serde(default)]
    pub addresses: Addresses,
    #[serde(default)]
    pub ssh: Ssh,
    #[serde(default)]
    pub ca: Ca,
    #[serde(default)]
    pub shell: Shell,
    #[serde(default)]
    pub data: Data,
    #[serde(default)]
    pub discovery: Discovery,
    #[serde(default)]
    pub patch: Patch,
    #[serde(default)]
    pub disk: Disk,
    #[serde(default)]
    pub origin: Origin,
    #[serde(default)]
    pub machines: Machines,
}

impl Default for Row {
    fn default() -> Self {
        Self {
            version: "3.5".to_owned(),
            members: 3,
            auth: Auth::Off,
            ports: Ports::Usual,
            log: Log::Long,
            addresses: Addresses::default(),
            ssh: Ssh::default(),
            ca: Ca::default(),
            shell: Shell::default(),
            data: Data::default(),
            discovery: Discovery::default(),
            patch: Patch::default(),
            disk: Disk::default(),
            origin: Origin::default(),
            machines: Machines::default(),
        }
    }
}

impl Row {
    /// The release that it begins with, as the lab calls it. Nothing if there is none such.
    pub fn release_of(minor: &str, patch: Patch) -> Option<&'static str> {
        Some(match (minor, patch) {
            ("3.4", Patch::Newest) => "3.4",
            ("3.4", Patch::Old) => "3.4.38",
            ("3.4", Patch::Strict) => "3.4.42",
            ("3.5", Patch::Newest) => "3.5",
            ("3.5", Patch::Old) => "3.5.16",
            ("3.5", Patch::Strict) => "3.5.28",
            ("3.6", Patch::Newest) => "3.6",
            ("3.6", Patch::Old) => "3.6.0",
            ("3.6", Patch::Strict) => "3.6.9",
            ("3.7", Patch::Newest) => "3.7",
            ("3.7", Patch::Old) => "3.7.0",
            _ => return None,
        })
    }

    pub fn release(&self) -> Result<&'static str> {
        let Self { version, patch, .. } = self;
        Self::release_of(version, *patch).with_context(|| format!("there is no {patch:?} release of {version}"))
    }

    pub fn data_dir(&self) -> &'static str {
        match self.disk {
            Disk::Mounted | Disk::Device => "/var/lib/etcd/data",
            Disk::Root => "/srv/etcd/data",
        }
    }

    pub fn client_port(&self) -> u16 {
        match self.ports {
            Ports::Usual => 2379,
            Ports::Others => 12379,
        }
    }

    pub fn peer_port(&self) -> u16 {
        match self.ports {
            Ports::Usual => 2380,
            Ports::Others => 12380,
        }
    }

    /// The password of root or of the user, after so many changes. It has the first one in it, for those who look for that.
    pub fn password(first: &str, changes: u32) -> String {
        if changes == 0 { first.to_owned() } else { format!("{first}-{changes}") }
    }

    /// What the cluster says beside its members.
    pub fn sections(&self, version: &str, password_changes: u32) -> String {
        let mut text = format!("    etcd:\n      version: {version}\n      quota: 2GiB\n");
        if self.ports == Ports::Others {
            let _ = writeln!(text, "      client_port: {}\n      peer_port: {}", self.client_port(), self.peer_port());
        }
        let settings: Vec<String> = self.settings().iter().map(|(name, value)| format!("{name}: {value}")).collect();
        if !settings.is_empty() {
            let _ = writeln!(text, "      settings: {{ {} }}", settings.join(", "));
        }
        match self.disk {
            Disk::Mounted => {}
            Disk::Root => text += &format!("      data_dir: {}\n", self.data_dir()),
            Disk::Device => text += &format!("      data_device: {DATA_DEVICE}\n"),
        }
        text + &self.auth_section(password_changes)
    }

    /// Settings of etcd that etcdrun has no word for.
    pub fn settings(&self) -> Vec<(&'static str, u32)> {
        let mut settings = Vec::new();
        if self.log == Log::Short {
            settings.push(("snapshot-count", 200));
        }
        // On a busy machine a server that does nothing but check the passwords of clients that come back would never be done with it.
        if self.auth == Auth::Password {
            settings.push(("bcrypt-cost", 4));
        }
        settings
    }

    /// What the cluster says of its users.
    pub fn auth_section(&self, password_changes: u32) -> String {
        let roles = format!("roles: {{ {USER}: {{ permissions: [{{ prefix: /judge/ }}] }} }}");
        let root_password = Self::password(ROOT_PASSWORD, password_changes);
        let user_password = Self::password(USER_PASSWORD, password_changes);
        match self.auth {
            Auth::Off => "    auth: { enabled: false }\n".to_owned(),
            Auth::Certificate => format!("    auth: {{ {roles}, users: {{ {USER}: {{ roles: [{USER}] }} }} }}\n"),
            Auth::Password => format!(
                "    auth: {{ method: password, root_password: {root_password}, {roles}, users: {{ {USER}: {{ roles: [{USER}], password: {user_password} }} }} }}\n"
            ),
        }
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { members, auth, ports, log, addresses, ssh, ca, shell, data, discovery, disk, origin, .. } = self;
        let version = self.release().unwrap_or(&self.version);
        if self.machines.are_guests() {
            write!(formatter, "guests on {:?}, ", self.machines)?;
        }
        write!(
            formatter,
            "etcd {version}, {members} members, auth {auth:?}, ports {ports:?}, log {log:?}, addresses {addresses:?}, ssh {ssh:?}, \
             CA {ca:?}, shell {shell:?}, data {data:?}, discovery {discovery:?}, disk {disk:?}, origin {origin:?}"
        )
    }
}
