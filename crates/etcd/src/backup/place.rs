//! Where backups are kept: `file:FOLDER` or `s3:BUCKET/PREFIX`.

use std::{fmt, path::PathBuf, str::FromStr};

use super::BackupError;
use crate::inventory::sections::BackupSection;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    Folder(PathBuf),
    Bucket { bucket: String, prefix: String },
}

impl FromStr for Place {
    type Err = BackupError;

    fn from_str(text: &str) -> Result<Self, BackupError> {
        let wrong = || BackupError::Place(text.to_owned());
        match text.split_once(':').ok_or_else(wrong)? {
            ("file", path) if !path.is_empty() => Ok(Self::Folder(path.strip_prefix("//").unwrap_or(path).into())),
            ("s3", path) => {
                let path = path.strip_prefix("//").unwrap_or(path);
                let (bucket, prefix) = path.split_once('/').unwrap_or((path, ""));
                let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
                match bucket.is_empty() || !bucket.bytes().all(good) {
                    true => Err(wrong()),
                    false => Ok(Self::Bucket { bucket: bucket.into(), prefix: prefix.trim_matches('/').into() }),
                }
            }
            _ => Err(wrong()),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "file:{}", path.display()),
            Self::Bucket { bucket, prefix } if prefix.is_empty() => write!(f, "s3:{bucket}"),
            Self::Bucket { bucket, prefix } => write!(f, "s3:{bucket}/{prefix}"),
        }
    }
}

/// How one gets into a bucket, where the environment does not say.
#[derive(Clone, Default)]
pub struct Access {
    pub endpoint: Option<String>,
    pub region: Option<String>,
    /// A file with the authorities of the endpoint's certificate, in PEM.
    pub ca: Option<PathBuf>,
    pub access_key_id: Option<String>,
    pub secret_access_key: Option<String>,
}

impl Access {
    /// What there is to say about an endpoint without TLS, unless it is on this machine.
    pub fn exposed(&self) -> Option<String> {
        let names = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"];
        let endpoint = self.endpoint.clone().or_else(|| names.iter().find_map(|name| std::env::var(name).ok()))?;
        is_exposed(&endpoint).then(|| {
            format!(
                "backups are sent to {endpoint} without TLS: others on the network can read unencrypted backups and replace them; use https://"
            )
        })
    }

    pub fn of(section: &BackupSection) -> Self {
        Self {
            endpoint: section.endpoint.clone(),
            region: section.region.clone(),
            ca: section.ca.as_ref().map(PathBuf::from),
            access_key_id: section.access_key_id.clone(),
            secret_access_key: section.secret_access_key.clone(),
        }
    }
}

fn is_exposed(endpoint: &str) -> bool {
    let Some((scheme, rest)) = endpoint.split_once("://") else { return false };
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.split(':').next().unwrap_or_default(),
    };
    let is_here = host == "localhost" || host.parse::<std::net::IpAddr>().is_ok_and(|ip| ip.is_loopback());
    scheme.eq_ignore_ascii_case("http") && !is_here
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_read_and_written() {
        for (text, same) in [
            ("file:/srv/backups", "file:/srv/backups"),
            ("file:///srv/backups", "file:/srv/backups"),
            ("file:backups", "file:backups"),
            ("s3:bucket", "s3:bucket"),
            ("s3://bucket/a/b/", "s3:bucket/a/b"),
        ] {
            assert_eq!(text.parse::<Place>().unwrap().to_string(), same);
        }
        for (endpoint, exposed) in [
            ("http://s3.example.com", true),
            ("HTTP://10.0.0.1:9000/x", true),
            ("http://127.0.0.1.example.com", true),
            ("http://localhost@example.com", true),
            ("https://s3.example.com", false),
            ("http://127.0.0.1:9000", false),
            ("http://[::1]:9000", false),
            ("http://localhost", false),
        ] {
            assert_eq!(is_exposed(endpoint), exposed, "{endpoint}");
        }
        for wrong in ["", "bucket", "/srv/backups", "file:", "s3:", "s3:///x", "s3:a b", "ftp:x"] {
            assert!(wrong.parse::<Place>().is_err(), "{wrong}");
        }
    }
}
