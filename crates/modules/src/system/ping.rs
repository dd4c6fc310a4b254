//! `ping`: is the target there, can it run a shell as the task's user?

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::{model::Effects, remote::Payload};

/// Connects to the target, runs a shell there and answers `pong`. Changes nothing.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Ping {
    /// What to answer instead of `pong`.
    #[serde(default)]
    data: Option<String>,
}

impl Module for Ping {
    const NAME: &'static str = "ping";
    const FREE_FORM: Option<&'static str> = Some("data");
    const EXAMPLE: &'static str = "\
- name: Ping the host
  ping:
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "ping", doc: "`pong`, or the value of `data`." }];

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let data = self.data.as_deref().unwrap_or("pong");
        Ok(Action::Remote(Payload::new(include_str!("ping.sh")).value("data", data)))
    }
}
