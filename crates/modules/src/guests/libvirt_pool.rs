//! `libvirt_pool`: storage pools that are folders.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, BuildContext, Module, ModuleError, ResultField, domain_xml::to_xml, libvirt};
use crate::{
    model::{Disruption, Effects},
    remote::Payload,
};

const BODY: &str = concat!(include_str!("libvirt.sh"), include_str!("libvirt_pool.sh"));

/// Manages a libvirt storage pool that is a directory of the hypervisor: defined, started, started at boot.
///
/// `state: absent` only undefines the pool; the directory and its content are kept.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibvirtPool {
    name: String,
    /// The directory. Required to create the pool; an existing pool is not moved.
    #[serde(default)]
    path: Option<String>,
    /// Start the pool when the hypervisor boots.
    #[serde(default = "yes")]
    autostart: bool,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Defined and started.
    #[default]
    Present,
    /// Not defined.
    Absent,
}

fn yes() -> bool {
    true
}

#[derive(Serialize)]
#[serde(rename = "pool")]
struct PoolXml<'a> {
    #[serde(rename = "@type")]
    kind: &'static str,
    name: &'a str,
    target: TargetXml<'a>,
}

#[derive(Serialize)]
struct TargetXml<'a> {
    path: &'a str,
}

impl Module for LibvirtPool {
    const NAME: &'static str = "libvirt_pool";
    const EXAMPLE: &'static str = "\
- name: Define a pool for the guests' disks
  libvirt_pool:
    name: etcd
    path: /var/lib/libvirt/etcd
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "path", doc: "The directory of the pool." }];

    fn effects(&self) -> Effects {
        let disrupts = if self.state == State::Absent { Disruption::Maybe } else { Disruption::No };
        Effects::converging().disrupting(disrupts)
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        libvirt::check_name("pool", &self.name)?;
        let path = match self.path.as_deref() {
            Some(path) => Some(libvirt::checked_path("path", path)?),
            None => None,
        };
        let xml = path.map(|path| PoolXml { kind: "dir", name: &self.name, target: TargetXml { path } });
        let xml = xml.map(|xml| to_xml(&xml)).transpose().map_err(|error| ModuleError::new(error.to_string()))?;
        let payload = Payload::new(BODY)
            .value("state", if self.state == State::Present { "present" } else { "absent" })
            .value("name", &self.name)
            .maybe("path", path)
            .maybe("xml", xml)
            .flag("autostart", self.autostart);
        Ok(Action::Remote(payload))
    }
}
