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
use etcdrun_etcd::etcd::{CLIENT_PORT, ServerConfig, environment, settings};

/// Writes the settings of etcd, for the version that runs.
///
/// They are variables for systemd's `EnvironmentFile`. With these settings etcd never bootstraps a new cluster: the
/// initial settings for a bootstrap come from `etcd_bootstrap`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdConfig {
    /// The file on the target.
    dest: String,
    /// The member's name.
    name: String,
    /// The version of etcd, if it differs from the section: a version on an upgrade path.
    #[serde(default)]
    version: Option<Version>,
    /// The address that etcd binds, besides loopback, and advertises.
    ip: String,
    /// The section `etcd`, merged with that of this member.
    #[serde(default)]
    etcd: EtcdSection,
    /// The cluster's section `auth`.
    #[serde(default)]
    auth: AuthSection,
    /// The data directory.
    data_dir: String,
    /// The client port.
    #[serde(default = "client_port")]
    client_port: u16,
    /// The peer port.
    #[serde(default = "super::peer_port")]
    peer_port: u16,
    /// The file with the member's certificate, on the target.
    certificate: String,
    /// The file with its key.
    key: String,
    /// The file with the trusted CA certificates.
    authority: String,
    /// The unit that reads the settings at start: while it runs, new ones are staged next to the file, as FILE.next, until
    /// `etcd_service` restarts it. A new peer address is staged also while it is stopped: it has to be registered in etcd first.
    #[serde(default)]
    stage_for: Option<String>,
}

fn client_port() -> u16 {
    CLIENT_PORT
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
