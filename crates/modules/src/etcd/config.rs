//! `etcd_config`: the settings of one server.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, BuildContext, Module, ModuleError, ResultField,
    place::{self, Place},
};
use crate::{
    inventory::sections::{AuthMethod, AuthSection, EtcdSection},
    model::{Effects, FileMode, Resource, Version},
};
use etcdrun_etcd::etcd::{ServerConfig, environment, settings};

/// Writes the settings of an etcd server, as the version that it runs understands them.
///
/// They are variables for systemd's `EnvironmentFile`. The settings never let a server begin a new cluster: what the
/// first start needs beyond them is told by `etcd_bootstrap`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdConfig {
    /// The file on the target.
    dest: String,
    /// The member's name.
    name: String,
    /// The version that is to read it, if it is not the one of the section: one on the way there.
    #[serde(default)]
    version: Option<Version>,
    /// The address that etcd binds, beside loopback, and tells others.
    ip: String,
    /// The section `etcd`, with what is special to this member.
    #[serde(default)]
    etcd: EtcdSection,
    /// The cluster's section `auth`.
    #[serde(default)]
    auth: AuthSection,
    /// The folder for the data.
    data_dir: String,
    /// Where clients connect.
    #[serde(default = "client_port")]
    client_port: u16,
    /// Where the other members connect.
    #[serde(default = "peer_port")]
    peer_port: u16,
    /// The file with the server's certificate, on the target.
    certificate: String,
    /// The file with its key.
    key: String,
    /// The file with the certificates of those who are trusted.
    authority: String,
    /// The unit that reads the settings when it starts: while it runs, new ones wait beside the file, as FILE.next, until
    /// `etcd_service` restarts it. A new peer address waits also while it is stopped: etcd has to be told first.
    #[serde(default)]
    stage_for: Option<String>,
}

fn client_port() -> u16 {
    2379
}

fn peer_port() -> u16 {
    2380
}

impl Module for EtcdConfig {
    const NAME: &'static str = "etcd_config";
    const EXAMPLE: &'static str = "\
- name: Write etcd.env
  etcd_config:
    dest: /etc/etcd/etcd.env
    name: \"{{ inventory_hostname }}\"
    ip: \"{{ member.ip }}\"
    etcd: \"{{ member.etcd }}\"
    data_dir: /var/lib/etcd/data
    certificate: /etc/etcd/pki/server.crt
    key: /etc/etcd/pki/server.key
    authority: /etc/etcd/pki/ca.crt
";
    const RESULT: &'static [ResultField] = place::RESULT;

    fn effects(&self) -> Effects {
        Effects::converging().writing([Resource::path(&self.dest)])
    }

    fn action(mut self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let wanted = self.etcd.version.or(self.version).ok_or_else(|| {
            ModuleError::new("the version of etcd is not set").help("add `etcd: {version: 3.5.34}` to the cluster")
        })?;
        let version = self.version.unwrap_or(wanted);
        // On the way to a version, what only that one understands has to wait.
        self.etcd.settings.retain(|name, _| {
            settings::problem(version, name).is_none() || settings::problem(wanted, name).is_some() || version == wanted
        });
        if self.ip.parse::<std::net::IpAddr>().is_err() {
            return Err(ModuleError::new(format!("`{}` is not an address that etcd could bind", self.ip))
                .help("set the member's `address` to an IP address, or set `etcd: {ip: ...}`"));
        }
        for name in self.etcd.settings.keys() {
            if let Some((message, help)) = settings::problem(version, name) {
                return Err(ModuleError { message, help });
            }
        }
        let text = environment(&ServerConfig {
            name: &self.name,
            ip: &self.ip,
            version,
            etcd: &self.etcd,
            data_dir: &self.data_dir,
            client_port: self.client_port,
            peer_port: self.peer_port,
            client_certificates: self.auth.method() == AuthMethod::Certificate,
            authority: &self.authority,
            certificate: &self.certificate,
            key: &self.key,
        });
        let mode = "0644".parse::<FileMode>().ok();
        let place = Place {
            dest: self.dest,
            mode,
            stage_for: self.stage_for,
            address_line: Some("ETCD_LISTEN_PEER_URLS"),
            ..Place::default()
        };
        Ok(Action::Remote(place.inline(text.as_bytes())))
    }
}
