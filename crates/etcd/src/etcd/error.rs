//! Why etcd gave no answer, or not the one that was hoped for.

use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    #[error("cannot use the certificates: {0}")]
    Certificates(String),
    #[error("{member} does not answer: {reason}")]
    Unavailable { member: String, reason: String },
    #[error("{member} cannot be trusted: {reason}")]
    Handshake { member: String, reason: String },
    #[error("{member} did not answer within {limit:?}")]
    TimedOut { member: String, limit: Duration },
    #[error("{member} refuses: {reason}")]
    Refused { member: String, reason: String },
}

/// What etcd says if a user that was created without a password logs in with one.
const NO_PASSWORD: &str = "password was given for no password user";

impl EtcdError {
    pub(super) fn of(member: &str, error: &etcd_client::Error) -> Self {
        use tonic::Code;
        let member = member.to_owned();
        match error {
            etcd_client::Error::GRpcStatus(status) => {
                let reason = match (status.message(), std::error::Error::source(status)) {
                    (message, None) if message.contains(NO_PASSWORD) => format!(
                        "{message}: the user was created for a certificate, and `auth.method` cannot change; set it back to `certificate`"
                    ),
                    (message, None) => message.to_owned(),
                    (message, Some(source)) => format!("{message}: {}", innermost(source)),
                };
                match status.code() {
                    Code::Unavailable | Code::Unknown | Code::DeadlineExceeded | Code::Cancelled => {
                        Self::Unavailable { member, reason }
                    }
                    _ => Self::Refused { member, reason },
                }
            }
            other => Self::Unavailable { member, reason: other.to_string() },
        }
    }

    /// Whether a read fails like this that no majority agrees to, of a member that answers otherwise.
    pub(super) fn lacks_majority(&self) -> bool {
        match self {
            Self::TimedOut { .. } => true,
            Self::Unavailable { reason, .. } => reason.starts_with("Timeout expired") || self.tells_no_majority(),
            _ => false,
        }
    }

    /// Whether etcd itself says so. One that waits for what was agreed on says something else.
    pub fn tells_no_majority(&self) -> bool {
        const AGREED: &str = "waiting for the applied index";
        const ALONE: [&str; 2] = ["etcdserver: no leader", "etcdserver: request timed out"];
        match self {
            Self::Unavailable { reason, .. } => {
                ALONE.iter().any(|alone| reason.starts_with(alone)) && !reason.contains(AGREED)
            }
            _ => false,
        }
    }

    /// Whether a login was refused where none is needed: authentication is off, or the member is a learner. A learner takes no
    /// login, and answers Status to anybody.
    pub(super) fn needs_no_login(&self) -> bool {
        const WORDS: [&str; 2] = ["authentication is not enabled", "rpc not supported for learner"];
        match self {
            Self::Refused { reason, .. } | Self::Unavailable { reason, .. } => {
                WORDS.iter().any(|words| reason.contains(words))
            }
            _ => false,
        }
    }

    /// Whether trying again may help.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::Unavailable { .. } | Self::TimedOut { .. })
    }
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use tonic::{Code, Status};

    use super::*;

    #[test]
    fn a_learner_needs_no_login() {
        let said = |code, message: &str| {
            EtcdError::of("a", &etcd_client::Error::GRpcStatus(Status::new(code, message))).needs_no_login()
        };
        assert!(said(Code::FailedPrecondition, "etcdserver: rpc not supported for learner"));
        assert!(said(Code::Unavailable, "etcdserver: rpc not supported for learner"), "as before 3.5");
        assert!(said(Code::FailedPrecondition, "etcdserver: authentication is not enabled"));
        assert!(!said(Code::InvalidArgument, "etcdserver: authentication failed, invalid user ID or password"));
    }

    fn lacks_majority(code: Code, message: &str) -> bool {
        EtcdError::of("a", &etcd_client::Error::GRpcStatus(Status::new(code, message))).lacks_majority()
    }

    #[test]
    fn only_silence_of_the_others_is_a_want_of_majority() {
        assert!(EtcdError::TimedOut { member: "a".into(), limit: Duration::from_secs(1) }.lacks_majority());
        assert!(lacks_majority(Code::Unavailable, "etcdserver: no leader"));
        assert!(lacks_majority(Code::Unavailable, "etcdserver: request timed out"));
        assert!(lacks_majority(Code::Unavailable, "etcdserver: request timed out, possibly due to connection lost"));
        assert!(lacks_majority(Code::Cancelled, "Timeout expired"));
        let silent = EtcdError::Unavailable { member: "a".into(), reason: "Timeout expired".into() };
        assert!(!silent.tells_no_majority(), "one that says nothing at all may serve others");
        let late = "etcdserver: request timed out, waiting for the applied index took too long";
        assert!(!lacks_majority(Code::Unavailable, late));
        assert!(!lacks_majority(Code::Unavailable, "etcdserver: leader changed"));
        assert!(!lacks_majority(Code::Unknown, "auth: something is wrong"));
        assert!(!lacks_majority(Code::Unavailable, "error reading from server: EOF"));
        assert!(!lacks_majority(Code::PermissionDenied, "etcdserver: permission denied"));
        assert!(!lacks_majority(Code::Unauthenticated, "etcdserver: invalid auth token"));
    }
}
