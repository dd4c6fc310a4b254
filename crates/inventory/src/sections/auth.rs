//! `auth`: who may do what in a cluster.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::Presence;

/// Authentication of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthSection {
    /// Whether clients must authenticate; default: true.
    pub enabled: Option<bool>,
    /// How clients authenticate; default: certificate.
    pub method: Option<AuthMethod>,
    /// The password of root, with `method: password`; default: a random one, stored in the state directory.
    pub root_password: Option<String>,
    /// The member on which root is created and authentication is enabled; default: any member that answers.
    pub bootstrap: Option<Bootstrap>,
    /// Users besides root, by name.
    pub users: IndexMap<String, Option<AuthUser>>,
    /// Roles besides root, by name.
    pub roles: IndexMap<String, Option<AuthRole>>,
}

impl AuthSection {
    pub fn is_enabled(&self) -> bool {
        self.enabled.unwrap_or(true)
    }

    pub fn method(&self) -> AuthMethod {
        self.method.unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum AuthMethod {
    /// By a client certificate, whose common name is the user.
    #[default]
    Certificate,
    /// By name and password.
    Password,
}

/// The one member that switches authentication on.
#[derive(Clone, Debug, PartialEq, JsonSchema)]
#[schemars(with = "String")]
pub struct Bootstrap(pub String);

impl<'de> Deserialize<'de> for Bootstrap {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut names = Vec::<String>::deserialize(deserializer)?;
        match names.len() {
            0 | 1 => Ok(Self(names.pop().unwrap_or_default())),
            more => Err(serde::de::Error::custom(format!(
                "{more} bootstrap members are named: authentication is enabled on only one member"
            ))),
        }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthUser {
    /// Without it, the user needs a certificate.
    pub password: Option<String>,
    /// Roles of the user.
    pub roles: Vec<String>,
    /// Whether there is such a user; default: present.
    pub state: Presence,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthRole {
    /// The permissions of the role.
    pub permissions: Vec<Permission>,
    /// Whether there is such a role; default: present. All users lose a role that is removed.
    pub state: Presence,
}

/// A permission on one key, on all keys with a prefix, or on a range.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Permission {
    /// One key; or the first, with `range_end`.
    pub key: Option<String>,
    /// All keys with this prefix; "" for all keys.
    pub prefix: Option<String>,
    /// The end of the range, exclusive; "\0" for all keys from the first on.
    pub range_end: Option<String>,
    /// Default: readwrite.
    pub access: Option<Access>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    #[default]
    Readwrite,
    Read,
    Write,
}

impl Permission {
    /// What etcd would refuse, or take for something else.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        match (&self.key, &self.prefix, &self.range_end) {
            (None, None, _) | (Some(_), Some(_), _) => {
                Some(("needs one of `key` and `prefix`", "`key: /app/limit` is one key, `prefix: /app/` all below it"))
            }
            (_, Some(_), Some(_)) => {
                Some(("has `prefix` and `range_end`, which exclude each other", "write `key` instead of `prefix`"))
            }
            (Some(key), _, _) if key.is_empty() => Some(("has an empty `key`", "for all keys write `prefix: \"\"`")),
            (Some(key), _, Some(end)) if end <= key && end != "\0" => Some((
                "has a `range_end` that is not behind its `key`",
                "the end is exclusive: for one key remove it, for all keys with a prefix write `prefix`",
            )),
            _ => None,
        }
    }

    /// Whether two are about the same keys, so that etcd has only one of them.
    pub fn has_keys_of(&self, other: &Self) -> bool {
        (&self.key, &self.prefix, &self.range_end) == (&other.key, &other.prefix, &other.range_end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_a_first_key_and_an_end_behind_it() {
        let problem = |key: Option<&str>, prefix: Option<&str>, end: Option<&str>| {
            let text = |text: Option<&str>| text.map(str::to_owned);
            let permission = Permission { key: text(key), prefix: text(prefix), range_end: text(end), access: None };
            permission.problem().map(|(message, _)| message)
        };
        assert_eq!(problem(Some("/a"), None, None), None);
        assert_eq!(problem(Some("/a"), None, Some("/b")), None);
        assert_eq!(problem(Some("/a"), None, Some("\0")), None);
        assert_eq!(problem(None, Some(""), None), None);
        assert!(problem(None, None, Some("/b")).unwrap().contains("one of"));
        assert!(problem(Some("/a"), Some("/a"), None).unwrap().contains("one of"));
        assert!(problem(None, Some("/a"), Some("/b")).unwrap().contains("exclude each other"));
        assert!(problem(Some("/b"), None, Some("/a")).unwrap().contains("not behind"));
        assert!(problem(Some("/a"), None, Some("/a")).unwrap().contains("not behind"));
        assert!(problem(Some(""), None, None).unwrap().contains("empty"));
    }
}
