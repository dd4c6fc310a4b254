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

impl EtcdError {
    pub(super) fn of(member: &str, error: &etcd_client::Error) -> Self {
        use tonic::Code;
        let member = member.to_owned();
        match error {
            etcd_client::Error::GRpcStatus(status) => {
                let reason = match (status.message(), std::error::Error::source(status)) {
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
