//! `tls`: who signs a cluster's certificates, and what they are like.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::Seconds;

/// Certificates of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSection {
    pub ca: CaSection,
    /// The organization that certificates name.
    pub organization: Option<String>,
    /// How long a certificate is valid. 365d if not given.
    pub validity: Option<Seconds>,
    /// How long before its end a certificate is renewed. A third of `validity` if not given.
    pub early_renewal: Option<Seconds>,
    pub algorithm: Option<KeyAlgorithm>,
    /// More names and addresses for every member's certificate, such as that of a load balancer.
    pub names: Vec<String>,
}

/// A member's own certificate, which somebody else renews.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemberTls {
    /// The certificate, in PEM; relative to this file.
    pub certificate: Option<String>,
    /// Its key, in PEM, which may be encrypted with age; relative to this file.
    pub key: Option<String>,
}

/// The certificate authority: made here, brought along, or somebody else's.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaSection {
    /// The certificate of an authority that exists, in PEM; relative to this file. Without it one is made.
    pub certificate: Option<String>,
    /// Its key, in PEM, which may be encrypted with age; relative to this file.
    pub key: Option<String>,
    /// A command that signs: it reads a request in PEM, and writes the certificate in PEM. The key stays where it is.
    pub sign_command: Vec<String>,
    /// To whom the key of an authority that is made here is encrypted: age1..., ssh-ed25519 ... The recipients of the
    /// inventory's folder if not given (.age-recipients), or else your own identity.
    pub recipients: Vec<String>,
    /// What an authority that is made here is called. The cluster's name, and etcd, if not given.
    pub common_name: Option<String>,
    /// How long an authority that is made here is valid. 3650d if not given.
    pub validity: Option<Seconds>,
    /// The authority that is to take the place of this one, by `etcdrun certs rotate-ca`. Not needed where one is made here.
    pub next: Option<NextCa>,
}

/// An authority that exists, and is to take the place of another.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NextCa {
    /// Its certificate, in PEM; relative to this file.
    pub certificate: String,
    /// Its key, in PEM, which may be encrypted with age; relative to this file.
    pub key: Option<String>,
    /// A command that signs, as that of `ca`.
    pub sign_command: Vec<String>,
}

/// What kind of key a certificate has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyAlgorithm {
    /// ECDSA on P-256.
    #[default]
    Ecdsa,
    /// RSA with 2048 bits.
    Rsa,
}
