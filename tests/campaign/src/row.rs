//! One configuration: what a cluster is made of, in a word for each dimension.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// The password of root, where there are passwords. Like all others it must never be seen in an output.
pub const ROOT_PASSWORD: &str = "root-of-the-campaign";
pub const USER_PASSWORD: &str = "user-of-the-campaign";
/// The user of the judge, who may do everything below its prefix.
pub const USER: &str = "judge";

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

#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Row {
    /// The minor version that it begins with.
    pub version: String,
    pub members: usize,
    pub auth: Auth,
    pub ports: Ports,
    pub log: Log,
}

impl Row {
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

    /// What the cluster says beside its members.
    pub fn sections(&self, version: &str) -> String {
        let mut text = format!("    etcd:\n      version: {version}\n      quota: 2GiB\n");
        if self.ports == Ports::Others {
            let _ = writeln!(text, "      client_port: {}\n      peer_port: {}", self.client_port(), self.peer_port());
        }
        if self.log == Log::Short {
            let _ = writeln!(text, "      settings: {{ snapshot-count: 200 }}");
        }
        let roles = format!("roles: {{ {USER}: {{ permissions: [{{ prefix: /judge/ }}] }} }}");
        let _ = match self.auth {
            Auth::Off => writeln!(text, "    auth: {{ enabled: false }}"),
            Auth::Certificate => writeln!(text, "    auth: {{ {roles}, users: {{ {USER}: {{ roles: [{USER}] }} }} }}"),
            Auth::Password => writeln!(
                text,
                "    auth: {{ method: password, root_password: {ROOT_PASSWORD}, {roles}, users: {{ {USER}: {{ roles: [{USER}], password: {USER_PASSWORD} }} }} }}"
            ),
        };
        text
    }
}

impl std::fmt::Display for Row {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { version, members, auth, ports, log } = self;
        write!(formatter, "etcd {version}, {members} members, auth {auth:?}, ports {ports:?}, log {log:?}")
    }
}
