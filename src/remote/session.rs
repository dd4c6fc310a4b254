//! A link as one task uses it.

use std::{sync::Arc, time::Duration};

use super::{Link, OnFailure, Payload, RemoteError, Segment, Step, run::Deaf};
use crate::{model::Outcome, ssh::TcpTunnel};

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

impl Session {
    /// The payload as a step in this session's surroundings.
    pub fn step(&self, payload: Payload, check_mode: bool) -> Step {
        Step {
            payload,
            environment: self.surroundings.environment.clone(),
            check_mode,
            diff: self.surroundings.diff,
            timeout: self.surroundings.timeout,
            on_failure: OnFailure::Stop,
        }
    }

    /// Whether the same exec will do for both.
    pub fn is_like(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.link, &other.link) && self.surroundings.become_user == other.surroundings.become_user
    }

    pub async fn run_one(&self, payload: Payload, check_mode: bool) -> Result<Outcome, RemoteError> {
        let segment = Segment { steps: vec![self.step(payload, check_mode)] };
        only(self.run(segment, &Deaf).await?)
    }

    /// A TCP connection from the target to somewhere it can reach.
    pub async fn open_tcp(&self, host: &str, port: u16) -> Result<TcpTunnel, RemoteError> {
        let connection = self.link.connection().await?;
        connection.open_tcp(host, port).await.map_err(|error| RemoteError::Unreachable((&error).into()))
    }
}

/// The outcome of a segment of one step.
pub(super) fn only(outcomes: Vec<Outcome>) -> Result<Outcome, RemoteError> {
    outcomes.into_iter().next().ok_or_else(|| RemoteError::Protocol("the host ran nothing".into()))
}
