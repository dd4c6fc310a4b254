//! Decides whether a server is who it should be. Fails closed: whatever is not known is refused.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use etcdrun_base::mutant::{is_off, repair};
use russh::keys::ssh_key::certificate::CertType;
use russh::keys::{Algorithm, Certificate, EcdsaCurve, HashAlg, PublicKey, PublicKeyOrCertificate};

use super::SshError;
use super::known_hosts::{self, Entry, KeyBlob, KnownHosts, Marker};
use super::pattern;

/// A place in a known-hosts file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownLine {
    pub file: PathBuf,
    pub line: usize,
    pub kind: String,
    pub fingerprint: String,
    removable_by_name: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HostKeyError {
    #[error(
        "the host key of {host} is unknown: it sent {kind} {fingerprint}, and there is no key for {name} in {}",
        files(searched)
    )]
    Unknown {
        host: String,
        name: String,
        kind: String,
        fingerprint: String,
        searched: Vec<PathBuf>,
        /// The line that would make it known.
        known_hosts_line: String,
        /// An authority is named for this host, so a bare key is suspicious: never accepted as new.
        authority: Option<KnownLine>,
    },

    #[error(
        "THE HOST KEY OF {host} HAS CHANGED: expected {} {} ({}:{}), but it sent {kind} {fingerprint}",
        known.kind, known.fingerprint, known.file.display(), known.line
    )]
    Changed {
        host: String,
        name: String,
        kind: String,
        fingerprint: String,
        known: KnownLine,
        known_hosts_line: String,
    },

    #[error(
        "THE HOST KEY OF {host} IS REVOKED: {} {} is banned by {}:{}, and the host sent {kind} {fingerprint}",
        known.kind, known.fingerprint, known.file.display(), known.line
    )]
    Revoked { host: String, kind: String, fingerprint: String, known: KnownLine },

    #[error(
        "the host certificate of {host} is not valid: {problem} (certificate \"{key_id}\" for {fingerprint}, CA {} at {}:{})",
        authority.fingerprint, authority.file.display(), authority.line
    )]
    Certificate { host: String, key_id: String, fingerprint: String, problem: String, authority: KnownLine },
}

fn files(paths: &[PathBuf]) -> String {
    if paths.is_empty() {
        return "any file: no known_hosts file is configured".to_owned();
    }
    let names: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
    names.join(", ")
}

impl HostKeyError {
    /// The commands that would trust the key, for an operator who has checked it another way.
    pub fn hint(&self) -> String {
        match self {
            HostKeyError::Unknown { known_hosts_line, searched, authority, .. } => {
                let file = shell_path(searched.first().map_or(Path::new("~/.ssh/known_hosts"), |f| f));
                let trust = format!("echo '{known_hosts_line}' >> {file}");
                match authority {
                    None => format!(
                        "compare the fingerprint with the host's console, then trust it with `{trust}`, or let the first connection record keys with --accept-new"
                    ),
                    Some(at) => format!(
                        "{}:{} names a CA for this host, but the host has no certificate of it; sign its key, or trust it with `{trust}`",
                        at.file.display(),
                        at.line
                    ),
                }
            }
            HostKeyError::Changed { name, known, known_hosts_line, .. } => {
                let file = shell_path(&known.file);
                let (remove, warning) = match known.removable_by_name {
                    true => (format!("ssh-keygen -R '{name}' -f {file}"), ""),
                    false => (format!("sed -i {}d {file}", known.line), " (that line covers other names too)"),
                };
                format!(
                    "the connection may be intercepted. If the host was reinstalled, compare the fingerprint with its console, then replace the key with `{remove} && echo '{known_hosts_line}' >> {file}`{warning}"
                )
            }
            HostKeyError::Revoked { known, .. } => format!(
                "do not connect. Give the host a new key, or remove line {} of {} if the ban is wrong",
                known.line,
                known.file.display()
            ),
            HostKeyError::Certificate { authority, .. } => format!(
                "issue a new host certificate with the CA {} (`ssh-keygen -s CA -h -n NAMES -I ID HOST_KEY.pub`)",
                authority.fingerprint
            ),
        }
    }
}

fn shell_path(path: &Path) -> String {
    let text = path.display().to_string();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-~+@".contains(c);
    match text.chars().all(plain) {
        true => text,
        false => format!("'{}'", text.replace('\'', r"'\''")),
    }
}

/// Where to look for the keys of one host.
#[derive(Debug, Clone)]
pub(super) struct Checker {
    pub known: Arc<KnownHosts>,
    /// How messages call the host.
    pub host: String,
    /// The name that certificates are issued for: HostKeyAlias, or the address.
    pub principal: String,
    /// As it stands in known-hosts files: with the port, unless that is 22.
    pub name: String,
    /// The same without its port, where a line without a port may vouch for the key too.
    pub fallback_name: Option<String>,
    /// Files of the user, then of the system. New keys go into the first of the user's.
    pub user_files: Vec<PathBuf>,
    pub global_files: Vec<PathBuf>,
    pub accept_new: bool,
}

impl Checker {
    fn searched(&self) -> Vec<PathBuf> {
        [self.user_files.as_slice(), &self.global_files].concat()
    }

    fn entries(&self) -> Result<Vec<Entry>, SshError> {
        let mut found = Vec::new();
        for file in self.searched() {
            let entries = self.known.entries(&file)?;
            found.extend(entries.iter().filter(|entry| self.concerns(entry)).cloned());
        }
        Ok(found)
    }

    /// Whether there is anything that could vouch for the host.
    pub fn knows_it(&self) -> Result<bool, SshError> {
        Ok(!self.entries()?.is_empty())
    }

    /// A ban of the bare name holds on every port.
    fn concerns(&self, entry: &Entry) -> bool {
        let banned_name = self.fallback_name.as_ref();
        entry.covers(&self.name) || (entry.marker == Marker::Revoked && banned_name.is_some_and(|n| entry.covers(n)))
    }

    /// Host-key algorithms, the ones we can verify first; and those to ask a certificate for.
    pub fn algorithms(&self) -> Result<(Vec<Algorithm>, Vec<Algorithm>), SshError> {
        let entries = self.entries()?;
        let known = |algorithm: &Algorithm| {
            let kind = key_kind(algorithm);
            entries.iter().any(|entry| entry.marker == Marker::None && entry.key.kind == kind)
        };
        let (mut keys, others): (Vec<_>, Vec<_>) = ALGORITHMS.iter().cloned().partition(known);
        keys.extend(others);
        let has_authority = entries.iter().any(|entry| entry.marker == Marker::CertAuthority);
        let certificates = match has_authority {
            true => ALGORITHMS.to_vec(),
            false => Vec::new(),
        };
        Ok((keys, certificates))
    }

    /// `Ok` if the server may be trusted. The key exchange has proved that it holds the key.
    pub fn check(&self, offered: &PublicKeyOrCertificate) -> Result<(), SshError> {
        let entries = self.entries()?;
        let key = blob(&offered.public_key())?;
        let authority = match offered.certificate() {
            Some(certificate) => Some(blob(&PublicKey::new(certificate.signature_key().clone(), ""))?),
            None => None,
        };
        self.refuse_revoked(&entries, &key, authority.as_ref())?;
        if let (Some(certificate), Some(authority)) = (offered.certificate(), &authority)
            && let Some(entry) = find(&entries, Marker::CertAuthority, authority)
        {
            return self.check_certificate(certificate, &key, entry);
        }
        self.check_key(&entries, &key)
    }

    fn refuse_revoked(&self, entries: &[Entry], key: &KeyBlob, authority: Option<&KeyBlob>) -> Result<(), SshError> {
        let banned = find(entries, Marker::Revoked, key).or_else(|| find(entries, Marker::Revoked, authority?));
        match banned {
            None => Ok(()),
            Some(_) if is_off(repair::HOST_KEY_REVOKED) => Ok(()),
            Some(entry) => Err(SshError::from(Box::new(HostKeyError::Revoked {
                host: self.host.clone(),
                kind: key.kind.clone(),
                fingerprint: key.fingerprint(),
                known: self.known_line(entry),
            }))),
        }
    }

    fn check_certificate(&self, certificate: &Certificate, key: &KeyBlob, entry: &Entry) -> Result<(), SshError> {
        let Some(problem) = certificate_problem(certificate, &self.principal) else {
            return Ok(());
        };
        Err(SshError::from(Box::new(HostKeyError::Certificate {
            host: self.host.clone(),
            key_id: certificate.key_id().to_owned(),
            fingerprint: key.fingerprint(),
            problem,
            authority: self.known_line(entry),
        })))
    }

    fn check_key(&self, entries: &[Entry], key: &KeyBlob) -> Result<(), SshError> {
        if find(entries, Marker::None, key).is_some() {
            return Ok(());
        }
        let plain = || entries.iter().filter(|entry| entry.marker == Marker::None);
        // A host that used to have a key of another type has changed its key, not gained one.
        let same_kind = plain().find(|entry| entry.key.kind == key.kind);
        if let Some(entry) = same_kind.or_else(|| plain().next()).filter(|_| !is_off(repair::HOST_KEY_CHANGED)) {
            return Err(SshError::from(Box::new(HostKeyError::Changed {
                host: self.host.clone(),
                name: self.name.clone(),
                kind: key.kind.clone(),
                fingerprint: key.fingerprint(),
                known: self.known_line(entry),
                known_hosts_line: self.line_for(key),
            })));
        }
        if self.known_without_port(key)? {
            return Ok(());
        }
        self.unknown(entries, key)
    }

    /// Like ssh: a host on an unusual port may be listed under its bare name, with that very key.
    fn known_without_port(&self, key: &KeyBlob) -> Result<bool, SshError> {
        let Some(name) = &self.fallback_name else {
            return Ok(false);
        };
        for file in self.searched() {
            let entries = self.known.entries(&file)?;
            let vouches = |e: &Entry| e.marker == Marker::None && e.key == *key && e.covers(name);
            if entries.iter().any(vouches) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn unknown(&self, entries: &[Entry], key: &KeyBlob) -> Result<(), SshError> {
        let authority = entries.iter().find(|entry| entry.marker == Marker::CertAuthority);
        if self.accept_new
            && authority.is_none()
            && let Some(file) = self.user_files.first()
        {
            tracing::info!(host = %self.host, fingerprint = key.fingerprint(), "accepting a new host key");
            return self.known.append(file, &self.name, key);
        }
        if is_off(repair::HOST_KEY_UNKNOWN) {
            return Ok(());
        }
        Err(SshError::from(Box::new(HostKeyError::Unknown {
            host: self.host.clone(),
            name: self.name.clone(),
            kind: key.kind.clone(),
            fingerprint: key.fingerprint(),
            searched: self.searched(),
            known_hosts_line: self.line_for(key),
            authority: authority.map(|entry| self.known_line(entry)),
        })))
    }

    fn line_for(&self, key: &KeyBlob) -> String {
        format!("{} {}", self.name, key.encoded())
    }

    fn known_line(&self, entry: &Entry) -> KnownLine {
        KnownLine {
            file: entry.file.to_path_buf(),
            line: entry.line,
            kind: entry.key.kind.clone(),
            fingerprint: entry.key.fingerprint(),
            removable_by_name: entry.removable_by_name(&self.name),
        }
    }
}

fn find<'a>(entries: &'a [Entry], marker: Marker, key: &KeyBlob) -> Option<&'a Entry> {
    entries.iter().find(|entry| entry.marker == marker && entry.key == *key)
}

/// What is wrong with a host certificate whose authority is trusted for this host.
fn certificate_problem(certificate: &Certificate, principal: &str) -> Option<String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |elapsed| elapsed.as_secs());
    if certificate.verify_signature().is_err() {
        return Some("its signature does not match".to_owned());
    }
    if certificate.signature().algorithm() == (Algorithm::Rsa { hash: None }) {
        return Some("it is signed with SHA-1".to_owned());
    }
    if certificate.cert_type() != CertType::Host {
        return Some("it is a user certificate".to_owned());
    }
    if certificate.critical_options().iter().next().is_some() {
        return Some("it has critical options that are not defined for hosts".to_owned());
    }
    if now < certificate.valid_after() {
        return Some("it is not valid yet".to_owned());
    }
    if now >= certificate.valid_before() {
        return Some("it has expired".to_owned());
    }
    let names = certificate.valid_principals();
    if !names.iter().any(|name| pattern::matches(name, principal)) {
        return Some(format!("it is for [{}], not for {principal}", names.join(", ")));
    }
    None
}

fn blob(key: &PublicKey) -> Result<KeyBlob, SshError> {
    let bytes = key.to_bytes().map_err(|error| SshError::Protocol {
        to: "the host".to_owned(),
        reason: format!("its host key cannot be encoded: {error}"),
    })?;
    Ok(KeyBlob { kind: key_kind(&key.algorithm()), bytes })
}

/// The type in a known-hosts line: an RSA key is `ssh-rsa` whatever the signature's hash.
fn key_kind(algorithm: &Algorithm) -> String {
    match algorithm {
        Algorithm::Rsa { .. } => "ssh-rsa".to_owned(),
        other => other.as_str().to_owned(),
    }
}

/// What we accept from a server, best first. RSA with SHA-1 is left out on purpose.
const ALGORITHMS: &[Algorithm] = &[
    Algorithm::Ed25519,
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP256 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP384 },
    Algorithm::Ecdsa { curve: EcdsaCurve::NistP521 },
    Algorithm::Rsa { hash: Some(HashAlg::Sha512) },
    Algorithm::Rsa { hash: Some(HashAlg::Sha256) },
];

impl Checker {
    /// The names under which a host is looked up.
    pub fn names(address: &str, port: u16, alias: Option<&str>) -> (String, Option<String>) {
        match alias {
            Some(alias) => (alias.to_ascii_lowercase(), None),
            None => {
                let fallback = (port != 22).then(|| known_hosts::host_name(address, 22));
                (known_hosts::host_name(address, port), fallback)
            }
        }
    }
}
