//! `service`: units of systemd, by systemctl.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::{
    model::{Disruption, Effects, Resource},
    remote::Payload,
};

/// Starts, stops, restarts, reloads, enables or masks a unit of systemd.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Service {
    /// The unit; `.service` may be omitted.
    name: String,
    #[serde(default)]
    state: Option<State>,
    /// Whether it starts at boot.
    #[serde(default)]
    enabled: Option<bool>,
    /// Whether it cannot be started at all.
    #[serde(default)]
    masked: Option<bool>,
    /// Have systemd read its unit files again, before anything else.
    #[serde(default)]
    daemon_reload: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    /// Running; started if it is not.
    Started,
    /// Not running; stopped if it is.
    Stopped,
    /// Restarted in any case.
    Restarted,
    /// Reads its configuration again; started if it does not run.
    Reloaded,
}

impl State {
    fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Stopped => "stopped",
            Self::Restarted => "restarted",
            Self::Reloaded => "reloaded",
        }
    }
}

impl Module for Service {
    const NAME: &'static str = "service";
    const EXAMPLE: &'static str = "\
- name: Start etcd, now and at boot
  service:
    name: etcd
    state: started
    enabled: true
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "name", doc: "The unit's full name." },
        ResultField { name: "state", doc: "ActiveState: active, inactive, failed, ..." },
        ResultField { name: "sub_state", doc: "SubState: running, exited, dead, ..." },
        ResultField { name: "load_state", doc: "LoadState: loaded, masked, ..." },
        ResultField { name: "unit_file_state", doc: "UnitFileState: enabled, disabled, static, ..." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.state.is_none() && self.enabled.is_none() && self.masked.is_none() && self.daemon_reload.is_none() {
            return Err(
                ModuleError::new("nothing to do").help("set one of `state`, `enabled`, `masked` and `daemon_reload`")
            );
        }
        Ok(())
    }

    fn effects(&self) -> Effects {
        let disrupts = match self.state {
            Some(State::Restarted | State::Stopped) => Disruption::Yes,
            Some(_) => Disruption::Maybe,
            None => Disruption::No,
        };
        let name = unit_name(&self.name).unwrap_or_default();
        let files = UNIT_FOLDERS.iter().flat_map(|folder| {
            [Resource::path(format!("{folder}/{name}")), Resource::tree(format!("{folder}/{name}.d"))]
        });
        // A restart is a change whatever the unit was before.
        let looks = !matches!(self.state, Some(State::Restarted | State::Reloaded)) || self.enabled.is_some();
        let reads: Vec<_> =
            files.chain([Resource::Unit(name.clone()), Resource::AllPackages]).filter(|_| looks).collect();
        Effects::converging().disrupting(disrupts).reading(reads).writing([Resource::Unit(name)])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let payload = Payload::new(concat!(include_str!("../support/systemd.sh"), include_str!("service.sh")))
            .value("name", unit_name(&self.name)?)
            .maybe("state", self.state.map(State::name))
            .maybe("enabled", self.enabled.map(|on| on.to_string()))
            .maybe("masked", self.masked.map(|on| on.to_string()))
            .flag("daemon_reload", self.daemon_reload.unwrap_or_default());
        Ok(Action::Remote(payload))
    }
}

const SUFFIXES: &[&str] =
    &["service", "socket", "target", "timer", "mount", "automount", "swap", "path", "slice", "scope", "device"];

/// Where systemd looks for units.
const UNIT_FOLDERS: [&str; 4] =
    ["/etc/systemd/system", "/run/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"];

/// The full name of a unit: `etcd` is `etcd.service`.
pub(super) fn unit_name(name: &str) -> Result<String, ModuleError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || ":_.@-\\".contains(c);
    if name.is_empty() || name.starts_with(['-', '.']) || !name.chars().all(allowed) {
        return Err(ModuleError::new(format!("`{name}` is not the name of a unit"))
            .help("a name has letters, digits and any of `:_.@-\\`, such as etcd.service"));
    }
    let has_suffix = name.rsplit_once('.').is_some_and(|(_, suffix)| SUFFIXES.contains(&suffix));
    Ok(if has_suffix { name.to_owned() } else { format!("{name}.service") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_without_a_kind_is_a_service() {
        assert_eq!(unit_name("etcd").unwrap(), "etcd.service");
        assert_eq!(unit_name("etcd@a.b").unwrap(), "etcd@a.b.service");
        assert_eq!(unit_name("backup.timer").unwrap(), "backup.timer");
        for bad in ["", "--now", "a b", "a/b", "../x", "a\nb"] {
            assert!(unit_name(bad).is_err(), "{bad}");
        }
    }
}
