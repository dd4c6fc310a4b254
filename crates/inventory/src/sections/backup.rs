//! `backup`: where the backups of a cluster are, and how long.

use schemars::JsonSchema;
use serde::Deserialize;

/// Defaults for `etcdrun backup` and `etcdrun restore`. Credentials may also come from the environment, in the variables
/// of AWS.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackupSection {
    /// `file:DIRECTORY` or `s3:BUCKET/PREFIX`.
    pub to: Option<String>,
    /// The URL of an S3 service; default: AWS.
    pub endpoint: Option<String>,
    /// The region of the bucket; default: us-east-1.
    pub region: Option<String>,
    /// A file on your workstation with the CAs of the endpoint, in PEM, in addition to the CAs of the system.
    pub ca: Option<String>,
    /// The name of the key for the endpoint.
    pub access_key_id: Option<String>,
    /// The key itself; encrypt it.
    pub secret_access_key: Option<String>,
    /// Public keys of age or SSH. With any of them, backups are encrypted, and only holders of one of the keys can
    /// restore them.
    pub recipients: Vec<String>,
    /// Number of backups to keep; default: all, if `keep_days` is not set either.
    pub keep_last: Option<u32>,
    /// Number of days to keep backups.
    pub keep_days: Option<u32>,
}
