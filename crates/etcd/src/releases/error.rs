//! Why a release cannot be found, downloaded or used.

use std::{io, path::PathBuf};

use crate::{
    http::HttpError,
    model::{ByteSize, Version},
};

#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    #[error("`{0}` is neither a directory nor a URL that starts with https:// or http://")]
    Place(String),
    #[error("there is no etcd {version} at {place}")]
    Absent { version: Version, place: String },
    #[error("{sums} does not list {name}")]
    Unlisted { sums: String, name: String },
    #[error("{0} is not a list of SHA-256 checksums")]
    NoSums(String),
    #[error("{file} cannot be checked: there is no SHA256SUMS in {folder}")]
    Unchecked { file: String, folder: String },
    #[error("{what} has the sha256 {found}, expected {expected}")]
    Differs { what: String, found: String, expected: String },
    #[error("{file} is {found}, expected {expected}")]
    Other { file: String, found: String, expected: String },
    #[error("another etcdrun downloads {0}")]
    Busy(PathBuf),
    #[error("{place} lists no release of etcd")]
    NoIndex { place: String },
    #[error(transparent)]
    Http(#[from] HttpError),
    #[error("the download of {url} was interrupted after {size}: {why}")]
    Interrupted { url: String, size: String, why: String },
    #[error("{url} is larger than {limit}")]
    TooLarge { url: String, limit: ByteSize },
    #[error("{path}: {error}")]
    Disk { path: String, error: io::Error },
}

impl ReleaseError {
    pub(super) fn disk(path: &std::path::Path, error: io::Error) -> Self {
        Self::Disk { path: path.display().to_string(), error }
    }

    /// What helps.
    pub fn help(&self) -> Option<String> {
        Some(match self {
            Self::Place(_) => "pass a directory that exists, or the URL below which the versions are".to_owned(),
            Self::Absent { version, .. } => {
                format!("check the number; for a release of your own, pass --from with a directory that has v{version}")
            }
            Self::Unlisted { .. } => "choose another --arch, or another place with --from".to_owned(),
            Self::NoSums(_) => "check --from: each version has a file SHA256SUMS next to its tarballs".to_owned(),
            Self::Unchecked { .. } => "download the release's SHA256SUMS to the same directory".to_owned(),
            Self::Differs { .. } => {
                "do not use the file: it is damaged, or not the published one; remove it, and try again".to_owned()
            }
            Self::Other { .. } => "check the version, --arch and --from".to_owned(),
            Self::Busy(_) => "wait until that has ended, and run the command again".to_owned(),
            Self::NoIndex { .. } => {
                "check --from; without --online the releases that etcdrun knows are used".to_owned()
            }
            Self::Http(error) => return unconnected(error),
            Self::Interrupted { .. } => "run the command again: the download continues where it stopped".to_owned(),
            Self::TooLarge { .. } => "check --from: that is no release of etcd".to_owned(),
            Self::Disk { .. } => return None,
        })
    }

    /// Whether the place does not answer.
    pub fn is_silence(&self) -> bool {
        let is_silence = |error: &HttpError| {
            matches!(error, HttpError::Connect { .. } | HttpError::Exchange { .. } | HttpError::TimedOut(_))
        };
        matches!(self, Self::Interrupted { .. }) || matches!(self, Self::Http(error) if is_silence(error))
    }
}

fn unconnected(error: &HttpError) -> Option<String> {
    matches!(error, HttpError::Connect { .. } | HttpError::TimedOut(_)).then(|| {
        "without a route to it, set HTTPS_PROXY, or pass --from with a mirror or a directory; a CA of your own goes into SSL_CERT_FILE"
            .to_owned()
    })
}
