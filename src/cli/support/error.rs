//! Why a command ended early.

use std::io;

use super::exit::Exit;
use crate::{
    membership::Refusal,
    pki::PkiError,
    source::{Diagnostics, Sources},
    state::StateError,
};

#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// Problems of the input, with their places.
    #[error("the input has errors")]
    Input(Box<(Diagnostics, Sources)>),
    /// A problem of the command line itself.
    #[error("{message}")]
    Usage { message: String, help: Option<String> },
    /// What was asked for is not done, because a cluster is not fit for it.
    #[error("{message}")]
    Refused { message: String, help: Option<String> },
    /// Somebody has the lock, or may have.
    #[error("{message}")]
    Locked { message: String, help: String },
    /// Files of this machine are not what they were when a plan was made.
    #[error("changed since the plan was made: {0}")]
    Moved(String),
    /// A host cannot be reached, by a command that is about that host alone.
    #[error("{0}")]
    Unreachable(String),
    #[error("interrupted")]
    Interrupted,
    #[error(transparent)]
    Io(#[from] io::Error),
    /// A run cannot be kept, found or resumed.
    #[error(transparent)]
    State(#[from] StateError),
    #[error("{0}")]
    Unexpected(String),
}

impl From<Refusal> for CliError {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Input { message, help } => Self::Usage { message, help },
            Refusal::Gate { message, help } => Self::Refused { message, help },
        }
    }
}

impl From<PkiError> for CliError {
    fn from(error: PkiError) -> Self {
        Self::usage_with_help(error.message, error.help)
    }
}

impl CliError {
    pub fn usage(message: impl Into<String>) -> Self {
        Self::Usage { message: message.into(), help: None }
    }

    pub fn usage_with_help(message: impl Into<String>, help: Option<String>) -> Self {
        Self::Usage { message: message.into(), help }
    }

    pub fn exit(&self) -> Exit {
        match self {
            Self::Input(_) | Self::Usage { .. } => Exit::BadInput,
            Self::Refused { .. } => Exit::GateRefused,
            Self::Moved(_) => Exit::Moved,
            Self::Unreachable(_) => Exit::Unreachable,
            Self::Interrupted => Exit::Interrupted,
            Self::Locked { .. } | Self::State(StateError::Running(_)) => Exit::LockHeld,
            Self::State(StateError::Disk { .. } | StateError::Damaged { .. }) => Exit::Unexpected,
            Self::State(_) => Exit::BadInput,
            // Whoever closed the pipe has seen enough; that is no failure.
            Self::Io(error) if error.kind() == io::ErrorKind::BrokenPipe => Exit::Success,
            Self::Io(_) | Self::Unexpected(_) => Exit::Unexpected,
        }
    }
}
