//! Where releases are published, and under which names.

use std::{
    collections::BTreeSet,
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
};

use serde_json::Value;

use super::ReleaseError;
use crate::model::Version;

const OFFICIAL: &str = "https://github.com/etcd-io/etcd/releases/download";
/// Its newest hundred releases: those of some years.
const OFFICIAL_INDEX: &str = "https://api.github.com/repos/etcd-io/etcd/releases?per_page=100";
/// What lists the checksums of a release.
pub(super) const SUMS: &str = "SHA256SUMS";

/// What the binaries run on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    pub fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The name of a release without the ending of its tarball, which is also the directory in it.
    pub(super) fn stem(self, version: Version) -> String {
        format!("etcd-v{version}-linux-{}", self.name())
    }

    /// The tarball of a release.
    pub fn tarball(self, version: Version) -> String {
        format!("{}.tar.gz", self.stem(version))
    }
}

/// Where releases are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The project's own releases.
    Official,
    /// A URL with the same layout below it.
    Mirror(String),
    Folder(PathBuf),
}

impl FromStr for Place {
    type Err = ReleaseError;

    fn from_str(text: &str) -> Result<Self, ReleaseError> {
        let is_web = text.starts_with("https://") || text.starts_with("http://");
        match text {
            url if is_web && !url.contains(['?', '#']) => {
                crate::http::check_url(url)?;
                Ok(Self::Mirror(url.trim_end_matches('/').to_owned()))
            }
            path if !is_web && Path::new(path).is_dir() => Ok(Self::Folder(path.into())),
            other => Err(ReleaseError::Place(other.to_owned())),
        }
    }
}

impl Place {
    /// The URL below which the versions are, unless it is a directory.
    pub(super) fn base(&self) -> Option<&str> {
        match self {
            Self::Official => Some(OFFICIAL),
            Self::Mirror(url) => Some(url),
            Self::Folder(_) => None,
        }
    }

    /// What lists the versions.
    pub(super) fn index(&self) -> Option<String> {
        match self {
            Self::Official => Some(OFFICIAL_INDEX.to_owned()),
            Self::Mirror(url) => Some(format!("{url}/")),
            Self::Folder(_) => None,
        }
    }

    /// Whether somebody on the way could exchange the files and their checksums.
    pub fn is_unencrypted(&self) -> bool {
        matches!(self, Self::Mirror(url) if url.starts_with("http://"))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Official => f.write_str(OFFICIAL),
            Self::Mirror(url) => f.write_str(url),
            Self::Folder(path) => path.display().fmt(f),
        }
    }
}

/// The checksum of a file in the text of a SHA256SUMS. `where_from` is for the error.
pub(super) fn sum_in(text: &str, name: &str, where_from: &str) -> Result<String, ReleaseError> {
    let is_sum = |word: &str| word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
    let listed = |line: &str| {
        let (sum, file) = line.split_once(char::is_whitespace)?;
        let file = file.trim().trim_start_matches('*').trim_start_matches("./").to_owned();
        is_sum(sum).then(|| (file, sum.to_ascii_lowercase()))
    };
    let all: Vec<(String, String)> = text.lines().filter_map(listed).collect();
    if all.is_empty() {
        return Err(ReleaseError::NoSums(where_from.to_owned()));
    }
    let found = all.into_iter().find(|(file, _)| file == name);
    let unlisted = || ReleaseError::Unlisted { sums: where_from.to_owned(), name: name.to_owned() };
    found.map(|(_, sum)| sum).ok_or_else(unlisted)
}

/// The releases in an index: the JSON of GitHub and others like it, or a listing of directories. No drafts, no pre-releases.
pub(super) fn versions_in(text: &str) -> BTreeSet<Version> {
    match serde_json::from_str::<Value>(text) {
        Ok(Value::Array(entries)) => entries.iter().filter_map(release_of).collect(),
        _ => links_of(text).collect(),
    }
}

fn release_of(entry: &Value) -> Option<Version> {
    let is = |name: &str| entry.get(name).and_then(Value::as_bool) == Some(true);
    let name = entry.get("tag_name").or_else(|| entry.get("name"))?.as_str()?;
    if is("draft") || is("prerelease") { None } else { name.trim_end_matches('/').parse().ok() }
}

/// Versions that a listing links: `href="v3.5.34/"`.
fn links_of(text: &str) -> impl Iterator<Item = Version> {
    text.split("href=").skip(1).filter_map(|rest| {
        let quote = rest.chars().next().filter(|letter| matches!(letter, '"' | '\''))?;
        let link = rest[1..].split(quote).next()?.trim_end_matches('/');
        link.rsplit('/').next()?.strip_prefix('v')?.parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(versions: &BTreeSet<Version>) -> String {
        versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sums_are_found_by_the_name_of_the_file() {
        let (one, other) = ("a".repeat(64), "B".repeat(64));
        let text = format!("{one}  etcd-v3.5.34-linux-amd64.tar.gz\n{other} *./etcd-v3.5.34-linux-arm64.tar.gz\nx y\n");
        let sum = |name: &str| sum_in(&text, name, "SHA256SUMS").map_err(|error| error.to_string());
        assert_eq!(sum("etcd-v3.5.34-linux-amd64.tar.gz"), Ok(one));
        assert_eq!(sum("etcd-v3.5.34-linux-arm64.tar.gz"), Ok("b".repeat(64)));
        assert_eq!(sum("linux-amd64.tar.gz").unwrap_err(), "SHA256SUMS does not list linux-amd64.tar.gz");
        let page = sum_in("<html>404</html>", "x", "http://m/SHA256SUMS").unwrap_err();
        assert_eq!(page.to_string(), "http://m/SHA256SUMS is not a list of SHA-256 checksums");
    }

    #[test]
    fn an_index_is_json_or_a_listing() {
        let json = r#"[{"tag_name":"v3.7.2","body":"since v3.6.99"},{"tag_name":"v3.8.0-rc.0","prerelease":true},
            {"tag_name":"v3.8.0","draft":true},{"name":"v3.5.34/"},{"tag_name":"v3.4.45","prerelease":false}]"#;
        assert_eq!(told(&versions_in(json)), "3.4.45 3.5.34 3.7.2");
        let page = "<a href=\"../\">v3.6.99</a> <a href=\"v3.5.34/\">x</a><a href='/etcd/v3.6.15'>x</a><a href=\"v3.6.0-rc.1/\">";
        assert_eq!(told(&versions_in(page)), "3.5.34 3.6.15");
        assert_eq!(versions_in("nothing here").len(), 0);
    }

    #[test]
    fn a_place_is_a_url_or_a_directory() {
        let here = tempfile::tempdir().unwrap();
        let folder = here.path().to_str().unwrap();
        assert_eq!(folder.parse::<Place>().unwrap(), Place::Folder(folder.into()));
        let mirror: Place = "https://mirror.example/etcd/".parse().unwrap();
        assert_eq!(mirror, Place::Mirror("https://mirror.example/etcd".into()));
        assert!(!mirror.is_unencrypted() && "http://x".parse::<Place>().unwrap().is_unencrypted());
        for bad in ["/nonexistent", "ftp://x/y", "https://", "https://a:b@c/", "https://x/?a=b", ""] {
            assert!(bad.parse::<Place>().is_err(), "{bad}");
        }
    }
}
