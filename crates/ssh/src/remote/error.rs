//! Why a target did not answer as it should.

use std::{fmt, time::Duration};

use crate::ssh::SshError;

/// A message, and what the operator can do about it where that is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub message: String,
    pub hint: Option<String>,
}

impl Trouble {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), hint: None }
    }

    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<String> for Trouble {
    fn from(message: String) -> Self {
        Self::new(message)
    }
}

impl From<&str> for Trouble {
    fn from(message: &str) -> Self {
        Self::new(message)
    }
}

impl From<&SshError> for Trouble {
    fn from(error: &SshError) -> Self {
        Self { message: error.to_string(), hint: error.hint() }
    }
}

#[derive(Clone, Debug, thiserror::Error)]
pub enum RemoteError {
    /// Nothing was run.
    #[error("{0}")]
    Unreachable(Trouble),
    /// Something was sent and may have run, in part or to its end. It is never sent again.
    #[error("{0}")]
    Lost(Trouble),
    /// A step took too long, and was ended.
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
    /// sudo refused, or wants a password and none was given, or it was wrong.
    #[error("{0}")]
    Become(Trouble),
    /// The host answered in a way we do not understand.
    #[error("{0}")]
    Protocol(Trouble),
    /// A secret would have shown on the target; nothing was sent.
    #[error("{0}")]
    Exposed(Trouble),
    /// Nothing was sent, since it could have changed something.
    #[error("check mode was about to change something, which is a mistake in etcdrun; nothing was changed")]
    CheckMode,
    /// A file did not get across.
    #[error("{0}")]
    Transfer(Trouble),
    /// The lock of the run was broken; nothing was run.
    #[error("{0}")]
    LockLost(Trouble),
    /// A job could not be started, asked or forgotten; or a lock.
    #[error("{0}")]
    Job(Trouble),
}

impl RemoteError {
    /// What the operator can do about it, where that is known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Self::Unreachable(trouble)
            | Self::Lost(trouble)
            | Self::Become(trouble)
            | Self::Protocol(trouble)
            | Self::Exposed(trouble)
            | Self::Transfer(trouble)
            | Self::LockLost(trouble)
            | Self::Job(trouble) => trouble.hint.as_deref(),
            Self::TimedOut(_) | Self::CheckMode => None,
        }
    }

    /// Whether it is about the host rather than the task.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::Lost(_))
    }
}
