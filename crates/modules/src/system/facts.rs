//! `facts`: what a host is. Read from /proc, /sys and /etc, so it needs no tools on the target.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, BuildContext, Module, ModuleError, ResultField, Sets, Traits};
use crate::{model::Effects, remote::Payload};

/// Gathers facts about the target: system, kernel, size, address. Changes nothing.
///
/// os.id, os.version, os.family and os.name; arch, kernel, hostname, fqdn, boot_id, cpus, memory_mb, service_manager,
/// package_manager, virtualization, ipv4, user and uid.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GatherFacts {}

/// The fields of `facts.…` after a host's facts are gathered. An unknown fact is null.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    pub os: Os,
    /// The machine as `uname -m` names it: x86_64, aarch64.
    pub arch: String,
    /// The kernel's release: 6.1.0-18-amd64.
    pub kernel: String,
    pub hostname: String,
    /// The full name from /etc/hosts, without a DNS query; else the host name.
    pub fqdn: String,
    /// Changes at every reboot.
    pub boot_id: Option<String>,
    /// Processors that are online.
    pub cpus: u32,
    pub memory_mb: u64,
    /// systemd, openrc, or the name of process 1.
    pub service_manager: Option<String>,
    /// apt, dnf, yum, zypper, apk or pacman.
    pub package_manager: Option<String>,
    /// kvm, vmware, virtualbox, xen, hyperv, docker, podman, lxc, `guest` for one of another kind, or none.
    pub virtualization: String,
    /// The address on the interface of the default route.
    pub ipv4: Option<String>,
    /// Who the task runs as.
    pub user: String,
    pub uid: u32,
}

/// The system, by its os-release file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Os {
    /// debian, ubuntu, rocky, ...
    pub id: String,
    /// 12, 24.04, 9.4; null for rolling releases.
    pub version: Option<String>,
    /// debian, redhat, suse, alpine or arch; else the id.
    pub family: String,
    /// For people: Debian GNU/Linux 12 (bookworm).
    pub name: String,
}

/// Every path under `facts`, so that a misspelt one is found when a playbook is loaded.
const FACT_FIELDS: &[&str] = &[
    "os",
    "os.id",
    "os.version",
    "os.family",
    "os.name",
    "arch",
    "kernel",
    "hostname",
    "fqdn",
    "boot_id",
    "cpus",
    "memory_mb",
    "service_manager",
    "package_manager",
    "virtualization",
    "ipv4",
    "user",
    "uid",
];

impl Module for GatherFacts {
    const NAME: &'static str = "facts";
    const TRAITS: Traits = Traits { sets: Sets::Facts(FACT_FIELDS), ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Gather facts after the upgrade
  facts:
- debug:
    msg: \"{{ facts.os.name }} on {{ facts.arch }}\"
";
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "facts", doc: "The facts, also found under `facts` afterwards." }];

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Remote(Payload::new(include_str!("facts.sh"))))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_listed_fields_are_those_of_the_type() {
        let properties = |schema: &serde_json::Value, prefix: &str| -> Vec<String> {
            schema["properties"].as_object().unwrap().keys().map(|name| format!("{prefix}{name}")).collect()
        };
        let schema = schemars::schema_for!(Facts).to_value();
        let mut typed: BTreeSet<String> = properties(&schema, "").into_iter().collect();
        typed.extend(properties(&schema["$defs"]["Os"], "os."));
        let listed: BTreeSet<String> = FACT_FIELDS.iter().map(|&name| name.to_owned()).collect();
        assert_eq!(listed, typed);
    }
}
