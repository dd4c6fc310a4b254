//! `fail`: ends the host's part of the play with a message.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError};
use crate::model::{Effects, Outcome};

/// Fails with a message. Use it with `when`, to stop before something that cannot succeed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fail {
    /// The message to fail with.
    #[serde(default = "default_message")]
    msg: String,
}

fn default_message() -> String {
    "Failed as requested from task".into()
}

impl Module for Fail {
    const NAME: &'static str = "fail";
    const FREE_FORM: Option<&'static str> = Some("msg");
    const EXAMPLE: &'static str = "\
- name: Refuse a disk that is too small
  fail:
    msg: \"{{ disk }} has only {{ size_mb }} MB\"
  when: size_mb < 1024
";

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Done(Box::new(Outcome::failed(self.msg))))
    }
}
