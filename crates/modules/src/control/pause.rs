//! `pause`: waits.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, ActionContext, BuildContext, EngineAction, Module, ModuleError, Running};
use crate::model::{Effects, Outcome, Seconds};

/// Waits. To wait for a condition, use `wait_for`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// The number of seconds.
    #[serde(default)]
    seconds: Seconds,
    /// The number of additional minutes.
    #[serde(default)]
    minutes: u32,
}

impl Module for Pause {
    const NAME: &'static str = "pause";
    const EXAMPLE: &'static str = "\
- name: Wait for clients to reconnect
  pause: { seconds: 10 }
";

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Engine(Box::new(Wait(self.seconds.0 + Duration::from_secs(60) * self.minutes))))
    }
}

struct Wait(Duration);

impl EngineAction for Wait {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            if !context.check_mode() {
                context.wait(self.0).await?;
            }
            Ok(Outcome::ok())
        })
    }
}
