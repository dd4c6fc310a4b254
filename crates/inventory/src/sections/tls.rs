//! `tls`: who signs a cluster's certificates, and what they are like.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::Seconds;

/// Certificates of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TlsSection {
    pub ca: CaSection,
    /// The organization in certificates.
    pub organization: Option<String>,
    /// How long a certificate is valid; default: 365d.
    pub validity: Option<Seconds>,
    /// How long before it expires a certificate is renewed; default: a third of `validity`, or of its
    /// own lifetime if that is shorter.
    pub early_renewal: Option<Seconds>,
    pub algorithm: Option<KeyAlgorithm>,
    /// More names and addresses for every member's certificate, such as that of a load balancer.
    pub names: Vec<String>,
}

/// A member's own certificate, which etcdrun does not renew.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MemberTls {
    /// The certificate, in PEM; relative to this file.
    pub certificate: Option<String>,
    /// Its key, in PEM, which may be encrypted with age; relative to this file.
    pub key: Option<String>,
}

/// The CA: created by etcdrun, provided by you, or an external one.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct CaSection {
    /// The certificate of an existing CA, in PEM; relative to this file. Without it, etcdrun creates a CA.
    pub certificate: Option<String>,
    /// Its key, in PEM, which may be encrypted with age; relative to this file.
    pub key: Option<String>,
    /// A command that signs: it reads a request in PEM, and prints the certificate in PEM. etcdrun does not need the key.
    pub sign_command: Vec<String>,
    /// The recipients of the key of a CA that etcdrun creates: age1..., ssh-ed25519 ...; default: the recipients of the
    /// inventory's directory (.age-recipients), or else your own identity.
    pub recipients: Vec<String>,
    /// The common name of a CA that etcdrun creates; default: the cluster's name, and etcd.
    pub common_name: Option<String>,
    /// How long a CA that etcdrun creates is valid; default: 3650d.
    pub validity: Option<Seconds>,
    /// The CA that replaces this one, by `etcdrun certs rotate-ca`. Not needed if etcdrun creates the CA.
    pub next: Option<NextCa>,
}

/// An existing CA that replaces another.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct NextCa {
    /// Its certificate, in PEM; relative to this file.
    pub certificate: String,
    /// Its key, in PEM, which may be encrypted with age; relative to this file.
    pub key: Option<String>,
    /// A command that signs, like that of `ca`.
    pub sign_command: Vec<String>,
}

/// The kind of key of a certificate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyAlgorithm {
    /// ECDSA on P-256.
    #[default]
    Ecdsa,
    /// RSA with 2048 bits.
    Rsa,
}
