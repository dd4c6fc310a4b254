//! `group`: local groups.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, BuildContext, Module, ModuleError, ResultField};
use crate::{
    model::{Effects, Resource},
    remote::Payload,
};

/// Creates, changes or removes a group, with groupadd, groupmod and groupdel.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Group {
    name: String,
    /// The GID; default: chosen by the system.
    #[serde(default)]
    gid: Option<u32>,
    /// Choose the GID of a new group from the range for system groups.
    #[serde(default)]
    system: bool,
    #[serde(default)]
    state: State,
}

/// Whether there should be such a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    #[default]
    Present,
    Absent,
}

impl Module for Group {
    const NAME: &'static str = "group";
    const EXAMPLE: &'static str = "\
- name: Create a group for etcd
  group:
    name: etcd
    system: true
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "name", doc: "The name of the group." },
        ResultField { name: "gid", doc: "Its number; not known in check mode if the group is yet to be created." },
    ];

    fn effects(&self) -> Effects {
        Effects::converging().reading([Resource::AllPackages]).on([Resource::Group(self.name.clone())])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        account_name("group", &self.name)?;
        let payload = Payload::new(concat!(include_str!("../support/accounts.sh"), include_str!("group.sh")))
            .value("name", &self.name)
            .maybe("gid", self.gid.map(|gid| gid.to_string()))
            .flag("system", self.system)
            .value("state", if self.state == State::Present { "present" } else { "absent" });
        Ok(Action::Remote(payload))
    }
}

/// What the account tools take as a name; also keeps options and separators out.
pub(super) fn account_name(what: &str, name: &str) -> Result<(), ModuleError> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "_-.$".contains(c);
    if name.is_empty() || name.len() > 32 || name.starts_with('-') || !name.chars().all(allowed) {
        return Err(ModuleError::new(format!("`{name}` cannot be the name of a {what}"))
            .help("a name has up to 32 letters, digits, `_`, `-` and `.`"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hold_nothing_that_the_account_files_or_tools_would_misread() {
        for good in ["etcd", "_apt", "machine$", "a.b-c"] {
            assert!(account_name("user", good).is_ok(), "{good}");
        }
        for bad in ["", "-r", "a:b", "a b", "a,b", "a\nb", "a/b", &"a".repeat(33)] {
            assert!(account_name("user", bad).is_err(), "{bad}");
        }
    }
}
