//! `user`: local accounts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Action, BuildContext, Module, ModuleError, ResultField, group::account_name};
use crate::{
    model::{Effects, Resource},
    remote::Payload,
};

/// Creates, changes or removes an account, with useradd, usermod and userdel.
///
/// Attributes that are not set are not changed.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct User {
    name: String,
    #[serde(default)]
    uid: Option<u32>,
    /// The primary group, by name or number. It must exist.
    #[serde(default)]
    group: Option<String>,
    /// Further groups. The account leaves those that are not named here, unless `append` is true.
    #[serde(default)]
    groups: Option<Vec<String>>,
    /// Only add to `groups`.
    #[serde(default)]
    append: bool,
    #[serde(default)]
    shell: Option<String>,
    /// The path of the home directory.
    #[serde(default)]
    home: Option<String>,
    /// Create the home directory if it is missing.
    #[serde(default = "yes")]
    create_home: bool,
    /// Move the old home directory when `home` changes.
    #[serde(default)]
    move_home: bool,
    /// Make a new account a system account.
    #[serde(default)]
    system: bool,
    /// The account's description (GECOS).
    #[serde(default)]
    comment: Option<String>,
    /// The hash of the password, as crypt writes it. It travels on stdin and is never shown.
    #[serde(default)]
    password: Option<String>,
    /// Whether `password` also replaces another password, or is for new accounts only.
    #[serde(default)]
    update_password: UpdatePassword,
    /// Lock or unlock the password. A locked account can still log in with a key.
    #[serde(default)]
    password_lock: Option<bool>,
    #[serde(default)]
    state: State,
    /// With `state: absent`: remove the home directory and the mail spool too.
    #[serde(default)]
    remove: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum UpdatePassword {
    #[default]
    Always,
    OnCreate,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    #[default]
    Present,
    Absent,
}

fn yes() -> bool {
    true
}

impl Module for User {
    const NAME: &'static str = "user";
    const EXAMPLE: &'static str = "\
- name: Create the etcd user
  user:
    name: etcd
    system: true
    home: /var/lib/etcd
    create_home: false
    shell: /usr/sbin/nologin
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "name", doc: "The name of the account." },
        ResultField { name: "uid", doc: "Its number; not known in check mode if the account is yet to be created." },
        ResultField { name: "group", doc: "The number of its primary group." },
        ResultField { name: "home", doc: "Its home directory." },
        ResultField { name: "shell", doc: "Its login shell." },
    ];

    fn validate(&self) -> Result<(), ModuleError> {
        if self.append && self.groups.is_none() {
            return Err(ModuleError::new("`append` needs `groups`"));
        }
        if self.move_home && self.home.is_none() {
            return Err(ModuleError::new("`move_home` needs `home`, the place to move to"));
        }
        Ok(())
    }

    fn effects(&self) -> Effects {
        let home =
            self.home.as_deref().filter(|_| self.create_home || self.move_home || self.remove).map(Resource::tree);
        // A package may bring accounts.
        Effects::converging().reading([Resource::AllPackages]).writing(home).on([Resource::User(self.name.clone())])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        self.check_values()?;
        let payload = Payload::new(concat!(include_str!("../support/accounts.sh"), include_str!("user.sh")))
            .value("name", &self.name)
            .maybe("uid", self.uid.map(|uid| uid.to_string()))
            .maybe("group", self.group)
            .flag("set_groups", self.groups.is_some())
            .value("groups", self.groups.unwrap_or_default().join(" "))
            .flag("append", self.append)
            .maybe("shell", self.shell)
            .maybe("home", self.home)
            .flag("create_home", self.create_home)
            .flag("move_home", self.move_home)
            .flag("system", self.system)
            .flag("set_comment", self.comment.is_some())
            .maybe("comment", self.comment)
            .flag("set_password", self.password.is_some())
            .hidden("password", self.password.unwrap_or_default())
            .value(
                "update_password",
                if self.update_password == UpdatePassword::Always { "always" } else { "on_create" },
            )
            .maybe("password_lock", self.password_lock.map(|lock| lock.to_string()))
            .value("state", if self.state == State::Present { "present" } else { "absent" })
            .flag("remove", self.remove);
        Ok(Action::Remote(payload))
    }
}

impl User {
    fn check_values(&self) -> Result<(), ModuleError> {
        account_name("user", &self.name)?;
        for group in self.group.iter().chain(self.groups.iter().flatten()) {
            account_name("group", group)?;
        }
        for (what, value) in [("shell", &self.shell), ("home", &self.home), ("comment", &self.comment)] {
            if value.as_ref().is_some_and(|text| text.contains([':', '\n'])) {
                return Err(ModuleError::new(format!("`{what}` cannot contain a colon or a line break")));
            }
        }
        match &self.password {
            Some(password) if !is_hash(password) => Err(ModuleError::new("`password` is not a password hash")
                .help("create one with `openssl passwd -6`, or write \"*\" for no password")),
            _ => Ok(()),
        }
    }
}

/// What may stand in the shadow file: a crypt hash, or a mark that no password fits.
fn is_hash(text: &str) -> bool {
    let crypt = text.strip_prefix('!').unwrap_or(text).starts_with('$') && text.matches('$').count() >= 3;
    (crypt || matches!(text, "*" | "!" | "!!" | "!*")) && !text.contains([':', '\n'])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_hashes_are_passwords() {
        for good in ["$6$salt$hash", "$y$j9T$abc$def", "*", "!"] {
            assert!(is_hash(good), "{good}");
        }
        for bad in ["secret", "", "$ecret", "$6$a$b:c", "$6$a$b\nroot:x"] {
            assert!(!is_hash(bad), "{bad}");
        }
    }
}
