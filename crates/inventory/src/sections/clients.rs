//! `clients`: programs that use a cluster, and which version they are of.

use schemars::JsonSchema;
use serde::Deserialize;

use crate::model::Version;

/// A program that uses the cluster. etcdrun refuses an upgrade that it could not work with.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdClient {
    pub name: ClientName,
    /// The full version that runs: 4.1.4. If there are several, the oldest.
    pub version: Version,
}

/// Programs whose demands are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ClientName {
    Patroni,
}
