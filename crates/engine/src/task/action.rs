//! What a task does once its arguments are known.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::RunScope;
use crate::{
    model::{Masker, Outcome},
    remote::{Entry, JobState, MemberWatch, Payload, RemoteError, Session, Step, lock_is_held},
    source::Opener,
    ssh::Pins,
    state::StateFolder,
};

/// Either a payload for the target, or something the engine does itself.
pub enum Action {
    /// Runs on the target; several of these can share one exec.
    Remote(Payload),
    /// Runs here, with the target at hand: transfers, waits, reboots, facts.
    Engine(Box<dyn EngineAction>),
    /// Decided without any work: `debug`, `assert`, `set_fact`.
    Done(Box<Outcome>),
}

/// An operator-side action on its way to an outcome.
pub type Running<'a> = BoxFuture<'a, Result<Outcome, ActionError>>;

/// An operator-side action.
pub trait EngineAction: Send + Sync {
    /// With one lifetime for all, and not as `async_trait` writes it: its bounds between lifetimes keep the compiler from remembering
    /// that an `ActionContext` can be shared, and it takes a second to find that out for each module anew.
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a>;

    /// Whether it is there to reboot the target: then one that was under way is over once the target has booted. Any other
    /// has to look again.
    fn reboots(&self) -> bool {
        false
    }
}

/// Hears how far a transfer is.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// What an operator-side action can reach.
pub struct ActionContext {
    /// The way to the target. Connects when first used, so an action that needs no host makes none.
    pub session: Arc<Session>,
    /// The task's own limit, if it has one.
    pub timeout: Option<Duration>,
    /// For an action that must not run twice: its one payload in the target's ledger.
    pub entry: Option<Entry>,
    /// Payloads run only while the locks of the run are held.
    pub fenced: bool,
    /// Members of clusters that its payloads must leave as they are.
    pub watch: Option<Arc<MemberWatch>>,
    /// For an action that takes the target down: the job in which it does.
    pub job: Option<String>,
    /// The folder on the operator's disk in which state is kept.
    pub state: PathBuf,
    /// The command line of the run, as one could type it again.
    pub command: Arc<str>,
    /// Opens files of the operator that are encrypted.
    pub opener: Option<Arc<dyn Opener>>,
    /// Hears how many bytes of how many are on the target.
    pub progress: Progress,
    /// Knows what must not be shown.
    pub masker: Masker,
    /// What the actions of the run have in common.
    pub scope: Arc<RunScope>,
    /// The way to the other hosts of the inventory.
    pub reach: Arc<dyn Reach>,
    /// Somebody has interrupted the run.
    pub stop: CancellationToken,
}

/// The way to hosts of the inventory, by name.
pub trait Reach: Send + Sync {
    /// As the same user and in the same surroundings as another session; nothing if there is no such host.
    fn session(&self, host: &str, like: &Session) -> Option<Session>;
}

/// There is nobody else.
struct Alone;

impl Reach for Alone {
    fn session(&self, _: &str, _: &Session) -> Option<Session> {
        None
    }
}

impl ActionContext {
    /// For an action outside of a run: no lock, no ledger, no other hosts.
    pub fn alone(session: Arc<Session>) -> Self {
        Self {
            session,
            timeout: None,
            entry: None,
            fenced: false,
            watch: None,
            job: None,
            state: PathBuf::from(".etcdrun"),
            command: Arc::default(),
            opener: None,
            progress: Arc::new(|_, _| {}),
            masker: Masker::default(),
            scope: Arc::default(),
            reach: Arc::new(Alone),
            stop: CancellationToken::new(),
        }
    }

    /// Whether the action must only look, and say what it would change.
    pub fn check_mode(&self) -> bool {
        self.session.surroundings.check_mode
    }

    /// Waits so long, unless the run is interrupted.
    pub async fn wait(&self, time: Duration) -> Result<(), ActionError> {
        tokio::select! {
            () = tokio::time::sleep(time) => Ok(()),
            () = self.stop.cancelled() => Err(ActionError::Interrupted),
        }
    }

    /// Leave to change something of the operator's; there is none in check mode.
    pub fn permit(&self) -> Result<Permit, ActionError> {
        self.session.may_change()?;
        Ok(Permit(()))
    }

    /// Runs one payload on the target with the task's settings.
    pub async fn run(&self, payload: Payload) -> Result<Outcome, ActionError> {
        let (entry, fenced) = (self.entry.clone(), self.fenced);
        let payload = Payload { watch: self.watch.clone(), ..payload };
        let step = Step { entry, fenced, ..self.session.step(payload, false) };
        let outcome = self.session.run_step(step).await?;
        lock_is_held(&outcome)?;
        Ok(outcome)
    }

    /// Runs one payload apart from the connection, which may not survive it.
    pub async fn run_apart(&self, payload: Payload) -> Result<Outcome, ActionError> {
        let Some(job) = self.job.as_ref().filter(|_| !self.check_mode()) else { return self.run(payload).await };
        match self.session.run_job(payload, job).await? {
            JobState::Finished(outcome) => Ok(*outcome),
            JobState::Lost(why) => Err(ActionError::Remote(RemoteError::Lost(why.into()))),
            JobState::Running | JobState::Absent => Err(ActionError::Failed(format!("the job {job} has no end"))),
        }
    }

    /// The keys of guests.
    pub fn pins(&self) -> Pins {
        Pins::at(StateFolder::at(&self.state).known_hosts())
    }

    /// Puts a local file into the session's staging folder and returns its path there.
    pub async fn upload(&self, local: &Path) -> Result<String, ActionError> {
        Ok(self.session.upload(local).await?)
    }
}

/// What only an action that may change something can have.
pub struct Permit(());

/// Why an operator-side action did not come to an outcome of its own.
#[derive(Debug, thiserror::Error)]
pub enum ActionError {
    #[error(transparent)]
    Remote(#[from] RemoteError),
    /// The task failed; the message is for the person.
    #[error("{0}")]
    Failed(String),
    /// A gate of the action's own does not hold, and nothing was done.
    #[error("{0}")]
    Refused(String),
    /// It only waited, and the run was interrupted: as if it had never begun.
    #[error("interrupted while it waited")]
    Interrupted,
}
