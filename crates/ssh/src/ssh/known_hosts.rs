//! Known-hosts files: reading, matching, and appending a newly trusted key.

use std::collections::HashMap;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};

use super::SshError;
use super::pattern;
use crate::digest::sha256;

/// A public key as it travels: its type name and its encoded bytes. Comparing the bytes needs no
/// knowledge of the algorithm, so keys of types we cannot use still count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct KeyBlob {
    pub kind: String,
    pub bytes: Vec<u8>,
}

impl KeyBlob {
    pub fn fingerprint(&self) -> String {
        format!("SHA256:{}", STANDARD_NO_PAD.encode(sha256(&self.bytes)))
    }

    /// As it stands in a known-hosts line.
    pub fn encoded(&self) -> String {
        format!("{} {}", self.kind, STANDARD.encode(&self.bytes))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Marker {
    None,
    CertAuthority,
    Revoked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Hosts {
    Patterns(Vec<String>),
    Hashed { salt: Vec<u8>, hash: Vec<u8> },
}

/// One usable line.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub file: Arc<Path>,
    pub line: usize,
    pub marker: Marker,
    hosts: Hosts,
    pub key: KeyBlob,
}

impl Entry {
    pub fn covers(&self, name: &str) -> bool {
        match &self.hosts {
            Hosts::Patterns(patterns) => pattern::any_matches(patterns.iter().map(String::as_str), name),
            Hosts::Hashed { salt, hash } => {
                let key = aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, salt);
                aws_lc_rs::hmac::verify(&key, name.to_ascii_lowercase().as_bytes(), hash).is_ok()
            }
        }
    }

    /// Whether `ssh-keygen -R NAME` would remove this line, and nothing else with it.
    pub fn removable_by_name(&self, name: &str) -> bool {
        match &self.hosts {
            Hosts::Hashed { .. } => true,
            Hosts::Patterns(patterns) => {
                matches!(patterns.as_slice(), [one] if one.eq_ignore_ascii_case(name))
            }
        }
    }
}

/// `host`, or `[host]:port` where the port is not 22.
pub(super) fn host_name(host: &str, port: u16) -> String {
    let host = host.to_ascii_lowercase();
    match port {
        22 => host,
        port => format!("[{host}]:{port}"),
    }
}

/// Parses a whole file. Lines that make no sense are passed over, as ssh does, save for a
/// `@revoked` one: to ignore it would be to trust a key that someone took care to ban.
pub(super) fn parse(file: &Path, text: &str) -> Result<Vec<Entry>, SshError> {
    let shared: Arc<Path> = file.into();
    let mut entries = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line_number = index + 1;
        match parse_line(line) {
            Line::Blank => {}
            Line::Entry { marker, hosts, key } => {
                entries.push(Entry { file: shared.clone(), line: line_number, marker, hosts, key })
            }
            Line::Malformed { revoked: true } => {
                return Err(SshError::Config {
                    file: file.to_owned(),
                    line: line_number,
                    problem: "this @revoked line cannot be read".to_owned(),
                });
            }
            Line::Malformed { revoked: false } => {
                tracing::warn!(file = %file.display(), line = line_number, "unreadable known_hosts line");
            }
        }
    }
    Ok(entries)
}

enum Line {
    Blank,
    Entry { marker: Marker, hosts: Hosts, key: KeyBlob },
    Malformed { revoked: bool },
}

fn parse_line(line: &str) -> Line {
    let line = line.trim();
    if line.is_empty() || line.starts_with('#') {
        return Line::Blank;
    }
    let (marker, rest) = match line.split_once(char::is_whitespace) {
        Some(("@cert-authority", rest)) => (Marker::CertAuthority, rest),
        Some(("@revoked", rest)) => (Marker::Revoked, rest),
        _ if line.starts_with("@revoked") => return Line::Malformed { revoked: true },
        _ if line.starts_with('@') => return Line::Malformed { revoked: false },
        _ => (Marker::None, line),
    };
    let mut words = rest.split_whitespace();
    let parsed = (|| {
        let hosts = parse_hosts(words.next()?)?;
        let kind = words.next()?.to_owned();
        let bytes = STANDARD.decode(words.next()?).ok()?;
        // The blob starts with its own type; a line that contradicts itself is damaged.
        let named = bytes.get(4..4 + kind.len())?;
        (named == kind.as_bytes()).then_some((hosts, KeyBlob { kind, bytes }))
    })();
    match parsed {
        Some((hosts, key)) => Line::Entry { marker, hosts, key },
        None => Line::Malformed { revoked: marker == Marker::Revoked },
    }
}

fn parse_hosts(field: &str) -> Option<Hosts> {
    let Some(hashed) = field.strip_prefix("|1|") else {
        return Some(Hosts::Patterns(field.split(',').map(str::to_owned).collect()));
    };
    let (salt, hash) = hashed.split_once('|')?;
    Some(Hosts::Hashed { salt: STANDARD.decode(salt).ok()?, hash: STANDARD.decode(hash).ok()? })
}

/// Files that were read, kept until they change on disk.
#[derive(Debug, Default)]
pub(super) struct KnownHosts {
    files: Mutex<HashMap<PathBuf, Cached>>,
}

#[derive(Debug, Clone)]
struct Cached {
    stamp: Stamp,
    entries: Arc<[Entry]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    modified: Option<SystemTime>,
    length: u64,
}

impl KnownHosts {
    /// The entries of a file; a file that does not exist has none.
    pub fn entries(&self, path: &Path) -> Result<Arc<[Entry]>, SshError> {
        let metadata = match std::fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok([].into()),
            Err(error) => return Err(SshError::read(path, &error)),
        };
        let stamp = Stamp { modified: metadata.modified().ok(), length: metadata.len() };
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(cached) = files.get(path).filter(|cached| cached.stamp == stamp) {
            return Ok(cached.entries.clone());
        }
        let bytes = std::fs::read(path).map_err(|error| SshError::read(path, &error))?;
        let entries: Arc<[Entry]> = parse(path, &String::from_utf8_lossy(&bytes))?.into();
        let cached = Cached { stamp, entries: entries.clone() };
        files.insert(path.to_owned(), cached);
        Ok(entries)
    }

    /// Adds a line for a key of `name`, unless another process or task has just done so.
    ///
    /// The lock is on the file itself, so that several etcdruns at once do not mix their lines.
    pub fn append(&self, path: &Path, name: &str, key: &KeyBlob) -> Result<(), SshError> {
        append_line(path, name, key).map_err(|error| SshError::write(path, &error))?;
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.remove(path);
        Ok(())
    }
}

fn append_line(path: &Path, name: &str, key: &KeyBlob) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        let mut builder = std::fs::DirBuilder::new();
        builder.recursive(true).mode(0o700).create(folder)?;
    }
    let mut file = std::fs::OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(path)?;
    rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
    let mut text = String::new();
    file.seek(SeekFrom::Start(0))?;
    file.read_to_string(&mut text)?;
    let line = format!("{name} {}", key.encoded());
    if text.lines().any(|existing| existing.trim() == line) {
        return Ok(());
    }
    let missing_newline = !text.is_empty() && !text.ends_with('\n');
    let separator = if missing_newline { "\n" } else { "" };
    // One write, so that a reader never sees half a line.
    file.write_all(format!("{separator}{line}\n").as_bytes())?;
    file.sync_data()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";

    fn entry(line: &str) -> Entry {
        let mut entries = parse(Path::new("known_hosts"), line).unwrap();
        assert_eq!(entries.len(), 1, "{line}");
        entries.remove(0)
    }

    #[test]
    fn names_with_wildcards_ports_and_negations_match() {
        let line = entry(&format!("*.lab,!bad.lab,[10.0.0.1]:2222 {KEY} comment here"));
        assert!(line.covers("HV1.lab"));
        assert!(!line.covers("bad.lab"));
        assert!(line.covers(&host_name("10.0.0.1", 2222)));
        assert!(!line.covers(&host_name("10.0.0.1", 22)));
    }

    #[test]
    fn a_hashed_name_matches_only_its_host() {
        // Made with `ssh-keygen -H` from the name `example.org`.
        let salt = "F1E1KeoE/eEWhi10WpGv4OdiO6Y=";
        let key =
            aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, &STANDARD.decode(salt).unwrap());
        let hash = STANDARD.encode(aws_lc_rs::hmac::sign(&key, b"example.org"));
        let line = entry(&format!("|1|{salt}|{hash} {KEY}"));
        assert!(line.covers("example.org") && line.covers("Example.org"));
        assert!(!line.covers("example.com"));
    }

    #[test]
    fn markers_are_read_and_junk_is_passed_over() {
        assert_eq!(entry(&format!("@revoked * {KEY}")).marker, Marker::Revoked);
        let authority = entry(&format!("@cert-authority *.lab {KEY}"));
        assert_eq!(authority.marker, Marker::CertAuthority);
        let junk = format!("# comment\n\nhost only\nhost ssh-rsa {}\n@other * {KEY}\n", &KEY[12..]);
        assert!(parse(Path::new("k"), &junk).unwrap().is_empty());
    }

    #[test]
    fn an_unreadable_revoked_line_is_an_error() {
        let error = parse(Path::new("k"), "\n@revoked * ssh-ed25519 AAAA!\n").unwrap_err();
        assert_eq!(error.to_string(), "k:2: this @revoked line cannot be read");
    }

    #[test]
    fn appending_creates_the_file_and_keeps_lines_apart() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new/known_hosts");
        let key = entry(&format!("h {KEY}")).key;
        let known = KnownHosts::default();
        known.append(&path, "a", &key).unwrap();
        known.append(&path, "a", &key).unwrap();
        std::fs::write(&path, std::fs::read_to_string(&path).unwrap().trim_end()).unwrap();
        known.append(&path, "b", &key).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("a {KEY}\nb {KEY}\n"));
        assert_eq!(known.entries(&path).unwrap().len(), 2);
    }

    proptest::proptest! {
        #[test]
        fn no_text_makes_the_parser_panic(text in "(?s).{0,200}") {
            let _ = parse(Path::new("k"), &text);
        }

        #[test]
        fn no_line_makes_the_parser_panic(
            hosts in "[|1=a-z*!,@ ]{0,30}", kind in "[a-z@0-9-]{0,20}", blob in "[A-Za-z0-9+/=]{0,60}"
        ) {
            for entry in parse(Path::new("k"), &format!("{hosts} {kind} {blob}")).unwrap_or_default() {
                entry.covers("example.org");
            }
        }
    }
}
