//! `libvirt_power`: whether a guest runs.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField, Traits, libvirt};
use crate::{
    model::{Disruption, Effects, Seconds},
    remote::Payload,
};

/// Starts a guest, or shuts it down through its operating system, and waits for that.
///
/// Its definition is not changed; use `libvirt_domain` for that. A restarted guest has everything that
/// was defined since: a reboot from inside would keep the old memory and processors.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LibvirtPower {
    /// The domain.
    name: String,
    state: State,
    /// How long it may take to shut down.
    #[serde(default = "five_minutes")]
    timeout: Seconds,
    /// Power off a guest that does not shut down in time.
    #[serde(default)]
    force: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    Running,
    ShutOff,
    /// Shut down if it runs, and started.
    Restarted,
}

fn five_minutes() -> Seconds {
    Seconds(Duration::from_secs(300))
}

impl Module for LibvirtPower {
    const NAME: &'static str = "libvirt_power";
    const TRAITS: Traits = Traits { is_about_guest: true, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Shut down the guest
  libvirt_power: { name: etcd-1, state: shut_off }
";
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "was", doc: "What it did before: `running`, `shut off` and so on." }];

    fn effects(&self) -> Effects {
        let disrupts = if self.state == State::Running { Disruption::No } else { Disruption::Yes };
        Effects::converging().disrupting(disrupts)
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        libvirt::check_name("domain", &self.name)?;
        let state = match self.state {
            State::Running => "running",
            State::ShutOff => "shut_off",
            State::Restarted => "restarted",
        };
        let payload = Payload::new(concat!(include_str!("libvirt.sh"), include_str!("libvirt_power.sh")))
            .value("name", &self.name)
            .value("state", state)
            .value("timeout", self.timeout.0.as_secs().to_string())
            .flag("force", self.force);
        Ok(Action::Remote(payload))
    }
}
