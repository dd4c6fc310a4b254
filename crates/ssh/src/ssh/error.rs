//! Everything that can go wrong between us and a shell on the other side.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::host_key::HostKeyError;

#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum SshError {
    #[error("cannot connect to {to}: {reason}")]
    Connect { to: String, reason: String },

    #[error("{to} did not answer within {}s ({phase})", limit.as_secs_f32())]
    Timeout { to: String, phase: &'static str, limit: Duration },

    #[error("the connection to {to} was lost: {reason}")]
    Dropped { to: String, reason: String },

    #[error("cannot negotiate a connection with {to}: {reason}")]
    Protocol { to: String, reason: String },

    #[error(transparent)]
    HostKey(#[from] Box<HostKeyError>),

    #[error("there is no pinned SSH host key for {to} (looked for {name} in {})", pins.display())]
    Unlearnt { to: String, name: String, pins: PathBuf },

    #[error("{user}@{to} refused every key; tried {}; the server allows {allowed}", list(tried))]
    Auth { to: String, user: String, tried: Vec<String>, allowed: String },

    #[error("key {}: {problem}", path.display())]
    Key { path: PathBuf, problem: String },

    #[error("via {via}: {source}")]
    Jump {
        via: String,
        #[source]
        source: Arc<SshError>,
    },

    #[error("{via} could not reach {to}: {reason}")]
    Tunnel { via: String, to: String, reason: String },

    #[error("{to} refuses to run commands: {reason}")]
    ExecRefused { to: String, reason: String },

    #[error("{to} closed the session without an exit status")]
    NoExitStatus { to: String },

    #[error("the command on {to} no longer reads its input")]
    StdinClosed { to: String },

    #[error("{}:{line}: {problem}", file.display())]
    Config { file: PathBuf, line: usize, problem: String },

    #[error("cannot read {}: {reason}", path.display())]
    Read { path: PathBuf, reason: String },

    #[error("cannot write {}: {reason}", path.display())]
    Write { path: PathBuf, reason: String },

    #[error("host `{host}`: {problem}")]
    BadEndpoint { host: String, problem: String },
}

fn list(tried: &[String]) -> String {
    match tried.is_empty() {
        true => "nothing, there was no key to try".to_owned(),
        false => tried.join(", "),
    }
}

/// How the server's word for too many refused keys begins, once we have put it into our own.
pub(super) const NO_MORE_ATTEMPTS: &str = "no more attempts";

fn auth_hint(to: &str, user: &str, tried: &[String], allowed: &str) -> String {
    if tried.is_empty() {
        return format!("load a key into ssh-agent, or set `identity_file` for {to} in the inventory");
    }
    if allowed.starts_with(NO_MORE_ATTEMPTS) {
        return "name the right key with `identity_file`, and set `identities_only` so that other keys of the agent are not offered"
            .to_owned();
    }
    format!("check that one of these keys is in ~{user}/.ssh/authorized_keys on {to}")
}

impl SshError {
    pub(super) fn read(path: &Path, source: &std::io::Error) -> Self {
        SshError::Read { path: path.to_owned(), reason: source.to_string() }
    }

    pub(super) fn write(path: &Path, source: &std::io::Error) -> Self {
        SshError::Write { path: path.to_owned(), reason: source.to_string() }
    }

    /// Whether the host may be there again later: nothing was refused and nothing is misconfigured.
    pub fn is_unreachable(&self) -> bool {
        match self {
            SshError::Connect { .. }
            | SshError::Timeout { .. }
            | SshError::Dropped { .. }
            | SshError::Tunnel { .. }
            | SshError::NoExitStatus { .. } => true,
            SshError::Jump { source, .. } => source.is_unreachable(),
            _ => false,
        }
    }

    /// What the operator can do about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            SshError::HostKey(error) => Some(error.hint()),
            SshError::Jump { source, .. } => source.hint(),
            SshError::Unlearnt { .. } => Some(
                "`etcdrun playbook site.yaml` pins it when the guest boots; if the guest was created from another workstation, the state directory there has its key"
                    .to_owned(),
            ),
            SshError::Auth { to, user, tried, allowed } => Some(auth_hint(to, user, tried, allowed)),
            SshError::Timeout { .. } | SshError::Connect { .. } => {
                Some("check that the host is up, and its address and port".to_owned())
            }
            _ => None,
        }
    }
}
