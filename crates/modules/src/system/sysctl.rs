//! `sysctl`: settings of the kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::{
    model::{Effects, Resource},
    remote::Payload,
};

/// Writes a kernel setting to a file under /etc/sysctl.d, and applies it when that changed the file.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Sysctl {
    /// The setting: `vm.swappiness`, or with slashes, `net/ipv4/conf/eth0.1/forwarding`.
    name: String,
    /// Its value. Required unless `state` is `absent`.
    #[serde(default)]
    value: Option<String>,
    /// `absent` removes the setting from the file; the running kernel keeps its value.
    #[serde(default)]
    state: State,
    /// The file with the setting.
    #[serde(default = "default_file")]
    sysctl_file: String,
    /// Apply the value to the running kernel if the file has changed.
    #[serde(default = "yes")]
    reload: bool,
    /// Apply the value to the running kernel if it differs.
    #[serde(default)]
    sysctl_set: bool,
    /// Continue if the kernel does not have the setting or rejects the value.
    #[serde(default)]
    ignoreerrors: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    // The first state stands for a template at load, so it is one that asks for nothing else.
    Absent,
    #[default]
    Present,
}

fn default_file() -> String {
    "/etc/sysctl.d/99-etcdrun.conf".into()
}

fn yes() -> bool {
    true
}

impl Module for Sysctl {
    const NAME: &'static str = "sysctl";
    const EXAMPLE: &'static str = "\
- name: Set swappiness to 1
  sysctl:
    name: vm.swappiness
    value: 1
    sysctl_set: true
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "name", doc: "The setting." },
        ResultField { name: "value", doc: "Its value in the running kernel." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.state == State::Present && self.value.is_none() {
            return Err(ModuleError::new("`value` is missing").help("only `state: absent` goes without it"));
        }
        Ok(())
    }

    fn effects(&self) -> Effects {
        Effects::converging().on([Resource::Entry { file: self.sysctl_file.clone(), key: self.name.clone() }])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "._-/:@+".contains(c);
        if self.name.is_empty() || self.name.contains("..") || !self.name.chars().all(allowed) {
            return Err(ModuleError::new(format!("`{}` is not the name of a kernel setting", self.name)));
        }
        if self.value.as_ref().is_some_and(|value| value.contains('\n') || value.trim().is_empty()) {
            return Err(ModuleError::new("`value` must be one line, and not empty"));
        }
        if !self.sysctl_file.starts_with('/') {
            return Err(ModuleError::new("`sysctl_file` must be an absolute path"));
        }
        let payload = Payload::new(concat!(include_str!("../support/edit.sh"), include_str!("sysctl.sh")))
            .value("name", self.name)
            .maybe("value", self.value)
            .value("state", if self.state == State::Present { "present" } else { "absent" })
            .value("sysctl_file", self.sysctl_file)
            .flag("reload", self.reload)
            .flag("sysctl_set", self.sysctl_set)
            .flag("ignoreerrors", self.ignoreerrors);
        Ok(Action::Remote(payload))
    }
}
