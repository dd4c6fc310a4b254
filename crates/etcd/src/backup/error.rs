//! Why a backup cannot be made, found or read.

use std::io;

use crate::{etcd::snapshot::SnapshotError, source::OpenError};

#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    #[error("invalid backup location `{0}`; expected `file:DIRECTORY` or `s3:BUCKET/PREFIX`")]
    Place(String),
    #[error(
        "there are no credentials for `{0}`: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or put `access_key_id` and `secret_access_key` into the cluster's section `backup`"
    )]
    NoCredentials(String),
    #[error("cannot use `{place}`: {why}")]
    Settings { place: String, why: String },
    #[error("there is no {0}; create it first: etcdrun does not create it, because the name may be mistyped")]
    NoPlace(String),
    #[error("no permission: {what}: {why}")]
    Forbidden { what: String, why: String },
    #[error("{what}: {why}")]
    Failed { what: String, why: String },
    #[error("{name} does not exist")]
    Missing { name: String },
    #[error("{name} is not a manifest of a backup: {why}")]
    Manifest { name: String, why: String },
    #[error("{name} is damaged: {why}")]
    Damaged { name: String, why: String },
    #[error("{what} is not authentic: {why}; to accept it anyway, pass `--unauthenticated`")]
    Stranger { what: String, why: String },
    #[error(
        "{what} is not encrypted, but the section `backup` of the inventory has recipients; if it is yours, run `etcdrun backup rekey {cluster} {name}` first"
    )]
    Plain { what: String, cluster: String, name: String },
    #[error("cannot decrypt {name}: {}{}", .error.message, .error.help.as_ref().map(|help| format!("; {help}")).unwrap_or_default())]
    Shut { name: String, error: OpenError },
    #[error("{0}")]
    Recipient(String),
    #[error(transparent)]
    Snapshot(#[from] SnapshotError),
}

impl BackupError {
    pub fn io(what: impl Into<String>, error: &io::Error) -> Self {
        let what = what.into();
        match error.kind() {
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                Self::Forbidden { what, why: error.to_string() }
            }
            _ => Self::Failed { what, why: error.to_string() },
        }
    }
}
