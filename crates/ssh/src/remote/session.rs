//! A link as one task uses it.

use std::{sync::Arc, time::Duration};

use super::{Link, OnFailure, Payload, RemoteError, Segment, Step, error::Trouble, run::Deaf};
use crate::{model::Outcome, ssh::TcpTunnel};

/// As whom and in which surroundings a task runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// Become this user by sudo.
    pub become_user: Option<Arc<str>>,
    pub environment: Arc<Vec<(String, String)>>,
    pub diff: bool,
    /// Nothing may be changed: neither on the target nor for this task elsewhere.
    pub check_mode: bool,
    pub timeout: Option<Duration>,
}

/// A link as one task uses it.
pub struct Session {
    pub link: Arc<Link>,
    pub surroundings: Surroundings,
    /// What it sends by itself, such as files, goes only while the locks on this target are held.
    pub fenced: bool,
}

/// Hears of steps while they run.
pub trait StepSink: Send + Sync {
    fn started(&self, step: usize);
    /// A piece of live output; `error` for standard error.
    fn output(&self, step: usize, error: bool, text: &[u8]);
    fn finished(&self, step: usize, outcome: &Outcome);
}

impl Session {
    /// The payload as a step in this session's surroundings. In a session that may change nothing, no step may.
    pub fn step(&self, payload: Payload, check_mode: bool) -> Step {
        Step {
            environment: self.surroundings.environment.clone(),
            check_mode: check_mode || self.surroundings.check_mode,
            diff: self.surroundings.diff && !payload.no_diff,
            payload,
            timeout: self.surroundings.timeout,
            on_failure: OnFailure::Stop,
            entry: None,
            fenced: false,
        }
    }

    /// The guard of everything that changes something and is no payload; payloads have `mutate`.
    pub fn may_change(&self) -> Result<(), RemoteError> {
        match self.surroundings.check_mode {
            true => Err(RemoteError::CheckMode),
            false => Ok(()),
        }
    }

    /// Whether the same exec will do for both.
    pub fn is_like(&self, other: &Self) -> bool {
        let (ours, theirs) = (&self.surroundings, &other.surroundings);
        let same = ours.become_user == theirs.become_user && ours.check_mode == theirs.check_mode;
        same && Arc::ptr_eq(&self.link, &other.link)
    }

    /// Refuses what would put a secret where other users of the target can read it.
    pub fn refuse_exposed(&self, step: &Step) -> Result<(), RemoteError> {
        let masker = &self.link.options.masker;
        if masker.is_empty() {
            return Ok(());
        }
        let mut environment = step.environment.iter();
        if let Some((name, _)) = environment.find(|(_, value)| masker.is_in(value.as_bytes())) {
            return Err(exposed(&format!("`{name}` would put a secret into the environment")));
        }
        match step.payload.exposed(masker) {
            Some(name) => Err(exposed(&format!("`{name}` would put a secret on a command line"))),
            None => Ok(()),
        }
    }

    pub async fn run_one(&self, payload: Payload, check_mode: bool) -> Result<Outcome, RemoteError> {
        self.run_step(self.step(payload, check_mode)).await
    }

    pub async fn run_step(&self, step: Step) -> Result<Outcome, RemoteError> {
        only(self.run(Segment { steps: vec![step] }, &Deaf).await?)
    }

    /// Steps of that run have left a ledger on the target, as the user this session is.
    pub fn note_ledger(&self, run: &Arc<str>) {
        self.link.note_ledger(run, self.surroundings.become_user.as_ref());
    }

    /// A TCP connection from the target to somewhere it can reach.
    pub async fn open_tcp(&self, host: &str, port: u16) -> Result<TcpTunnel, RemoteError> {
        let connection = self.link.connection().await?;
        connection.open_tcp(host, port).await.map_err(|error| RemoteError::Unreachable((&error).into()))
    }

    /// Whether the target can open a TCP connection there; nothing if that cannot be known.
    pub async fn reaches(&self, host: &str, port: u16, limit: Duration) -> Option<bool> {
        self.link.connection().await.ok()?.reaches(host, port, limit).await
    }
}

fn exposed(message: &str) -> RemoteError {
    let message = format!("{message}, where others on the host can read it");
    RemoteError::Exposed(Trouble::new(message).hint(
        "pass it on `stdin` (a shell reads it by `read -r name`), or in a file with mode 0600 by `copy` or `template`",
    ))
}

/// The outcome of a segment of one step.
pub(super) fn only(outcomes: Vec<Outcome>) -> Result<Outcome, RemoteError> {
    outcomes.into_iter().next().ok_or_else(|| RemoteError::Protocol("the host ran nothing".into()))
}
