//! `systemd_unit`: unit files and drop-ins.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, BuildContext, Module, ModuleError, ResultField, service::unit_name, yes};
use crate::{
    model::{Disruption, Effects, Resource},
    remote::Payload,
};

/// Writes a unit file or a drop-in, and has systemd read it if it changed.
///
/// The text is checked by `systemd-analyze verify` before it is put in place, if the target has
/// that, unless `verify` is false. A running unit is not restarted when its file changes: notify a handler for that.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SystemdUnit {
    /// The unit with its suffix: `etcd.service`, `backup.timer`.
    name: String,
    /// The text of the file. Required unless `state` is `absent`.
    #[serde(default)]
    content: Option<String>,
    /// The name of a drop-in, such as `10-limits.conf`: the text is written there instead of to the unit file.
    #[serde(default)]
    dropin: Option<String>,
    /// `absent` stops and disables the unit and removes the file; of a drop-in only the file.
    #[serde(default)]
    state: State,
    /// Whether the unit starts at boot.
    #[serde(default)]
    enabled: Option<bool>,
    /// Whether the unit runs now.
    #[serde(default)]
    started: Option<bool>,
    /// The directory of unit files.
    #[serde(default = "default_directory")]
    directory: String,
    /// Whether systemd verifies the text first. Disable it for a text that is known to be valid, to save time.
    #[serde(default = "yes")]
    verify: bool,
    /// Whether a new text is staged while the unit runs, next to the file, as FILE.next, until `etcd_service` restarts it.
    #[serde(default)]
    stage: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    // The first state stands for a template at load, so it is one that asks for nothing else.
    Absent,
    #[default]
    Present,
}

fn default_directory() -> String {
    "/etc/systemd/system".into()
}

impl Module for SystemdUnit {
    const NAME: &'static str = "systemd_unit";
    const EXAMPLE: &'static str = "\
- name: Allow more open files for etcd
  systemd_unit:
    name: etcd.service
    dropin: 10-limits.conf
    content: |
      [Service]
      LimitNOFILE=65536
  notify: restart etcd
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "path", doc: "The file." },
        ResultField { name: "name", doc: "The unit's full name, with `enabled` or `started`, as the following." },
        ResultField { name: "state", doc: "ActiveState: active, inactive, failed, ..." },
        ResultField { name: "sub_state", doc: "SubState: running, exited, dead, ..." },
        ResultField { name: "load_state", doc: "LoadState: loaded, masked, ..." },
        ResultField { name: "unit_file_state", doc: "UnitFileState: enabled, disabled, static, ..." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.state == State::Present && self.content.is_none() {
            return Err(ModuleError::new("`content` is missing").help("only `state: absent` goes without it"));
        }
        Ok(())
    }

    fn effects(&self) -> Effects {
        let disrupts = match (self.state, self.started) {
            (State::Absent, _) if self.dropin.is_none() => Disruption::Yes,
            (_, Some(false)) => Disruption::Yes,
            (State::Absent, _) | (_, Some(_)) => Disruption::Maybe,
            _ => Disruption::No,
        };
        let file = match &self.dropin {
            Some(dropin) => format!("{}/{}.d/{dropin}", self.directory, self.name),
            None => format!("{}/{}", self.directory, self.name),
        };
        let unit = Resource::Unit(self.name.clone());
        let looks = self.enabled.is_some() || self.started.is_some() || self.state == State::Absent;
        let reads = looks.then(|| unit.clone());
        Effects::converging().disrupting(disrupts).reading(reads).writing([unit]).on([Resource::path(file)])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let wanted_state = self.started.map(|on| if on { "started" } else { "stopped" });
        let payload = Payload::new(concat!(
            include_str!("../support/edit.sh"),
            include_str!("../support/systemd.sh"),
            include_str!("../support/staged.sh"),
            include_str!("systemd_unit.sh")
        ))
        .maybe("stage_for", self.stage.then_some(self.name.as_str()))
        .value("name", full_name(&self.name)?)
        .hidden("content", self.content.map(whole_lines).unwrap_or_default())
        .maybe("dropin", self.dropin.as_deref().map(dropin_name).transpose()?)
        .value("state", if self.state == State::Present { "present" } else { "absent" })
        .maybe("enabled", self.enabled.map(|on| on.to_string()))
        .maybe("state_wanted", wanted_state)
        .flag("verify", self.verify)
        .value("directory", self.directory.trim_end_matches('/'));
        Ok(Action::Remote(payload))
    }
}

/// A file's name leaves no room for guessing its kind.
fn full_name(name: &str) -> Result<String, ModuleError> {
    let full = unit_name(name)?;
    if full != name {
        return Err(
            ModuleError::new(format!("`{name}` has no suffix")).help(format!("write `{full}`, or another kind"))
        );
    }
    Ok(full)
}

fn dropin_name(name: &str) -> Result<String, ModuleError> {
    if name.is_empty() || name.starts_with('.') || name.contains(['/', '\n']) {
        return Err(ModuleError::new(format!("`{name}` is not the name of a drop-in")).help("such as 10-limits.conf"));
    }
    Ok(if name.ends_with(".conf") { name.to_owned() } else { format!("{name}.conf") })
}

/// Exactly one line end at the end, so that the text compares equal to what was written before.
fn whole_lines(text: String) -> String {
    format!("{}\n", text.trim_end_matches('\n'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_and_stay_in_their_folder() {
        assert!(full_name("etcd").is_err());
        assert_eq!(full_name("etcd.service").unwrap(), "etcd.service");
        assert_eq!(dropin_name("10-limits").unwrap(), "10-limits.conf");
        for bad in ["", "../x.conf", ".hidden"] {
            assert!(dropin_name(bad).is_err(), "{bad}");
        }
    }
}
