//! The way to a target: a connection made when first needed, and the settings of a task on it.

use std::{path::Path, sync::Arc, time::Duration};

use super::{Payload, Segment};
use crate::model::Outcome;

/// One target. Shared by all tasks on it; connects once, and again after the connection was lost.
pub struct Link {}

/// As whom and in which surroundings a task runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Become this user by sudo.
    pub become_user: Option<Arc<str>>,
    pub environment: Arc<Vec<(String, String)>>,
    pub diff: bool,
    pub timeout: Option<Duration>,
}

/// A link as one task uses it.
pub struct Session {
    pub link: Arc<Link>,
    pub surroundings: Surroundings,
}

/// Hears of steps while they run.
pub trait StepSink: Send + Sync {
    fn started(&self, step: usize);
    /// A piece of live output; `error` for standard error.
    fn output(&self, step: usize, error: bool, text: &[u8]);
    fn finished(&self, step: usize, outcome: &Outcome);
}

/// Why a target did not answer as it should.
#[derive(Debug, thiserror::Error)]
pub enum RemoteError {
    #[error("{0}")]
    Unreachable(String),
    #[error("the connection was lost while `{0}` ran")]
    Lost(String),
    #[error("timed out after {0:?}")]
    TimedOut(Duration),
    /// sudo wants a password and none was given, or it was wrong.
    #[error("{0}")]
    Become(String),
    #[error("{0}")]
    Protocol(String),
}

impl Session {
    /// Runs the steps in order in one exec. Returns the outcomes of those that ran.
    pub async fn run(&self, _segment: Segment, _sink: &dyn StepSink) -> Result<Vec<Outcome>, RemoteError> {
        Err(RemoteError::Protocol("not connected".into()))
    }

    pub async fn run_one(&self, _payload: Payload, _check_mode: bool) -> Result<Outcome, RemoteError> {
        Err(RemoteError::Protocol("not connected".into()))
    }

    pub async fn upload(&self, _local: &Path) -> Result<String, RemoteError> {
        Err(RemoteError::Protocol("not connected".into()))
    }
}
