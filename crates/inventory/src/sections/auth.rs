//! `auth`: who may do what in a cluster.

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

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
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct AuthRole {
    /// The permissions of the role.
    pub permissions: Vec<Permission>,
}

/// A permission on one key, on all keys with a prefix, or on a range.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Permission {
    /// One key; or the first, with `range_end`.
    pub key: Option<String>,
    /// All keys with this prefix; "" for all keys.
    pub prefix: Option<String>,
    /// The end of the range, exclusive.
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
