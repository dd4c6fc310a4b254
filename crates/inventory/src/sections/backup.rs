//! `backup`: where the backups of a cluster are, and how long.

use schemars::JsonSchema;
use serde::Deserialize;

/// What `etcdrun backup` and `etcdrun restore` need not be told. Credentials may also come from the environment, by the
/// names that AWS gave them.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct BackupSection {
    /// `file:FOLDER` or `s3:BUCKET/PREFIX`.
    pub to: Option<String>,
    /// The URL of a service that speaks S3; AWS itself if not given.
    pub endpoint: Option<String>,
    /// The region of the bucket. us-east-1 if not given.
    pub region: Option<String>,
    /// A file on the operator's machine with the authorities of the endpoint, in PEM; beside those that the machine trusts.
    pub ca: Option<String>,
    /// The name of the key for the endpoint.
    pub access_key_id: Option<String>,
    /// The key itself; encrypt it.
    pub secret_access_key: Option<String>,
    /// Public keys of age or SSH; with any of them, backups are encrypted, and only those who have one of the keys can
    /// restore them.
    pub recipients: Vec<String>,
    /// How many backups stay; all if neither this nor `keep_days` is given.
    pub keep_last: Option<u32>,
    /// For how many days backups stay.
    pub keep_days: Option<u32>,
}
