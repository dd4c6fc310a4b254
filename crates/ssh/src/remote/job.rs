//! Jobs: payloads that run on by themselves, whatever becomes of the connection.
//!
//! A folder on the target holds all there is to know of a job: that it was to start, which process
//! keeps it, since which boot, and what came of it. Started, no result, no process: in doubt.

use std::time::Duration;

use super::{
    Payload, RemoteError, Segment, Session, Step,
    error::Trouble,
    lock::lock_is_held,
    reader::{Event, Reader, Source},
    run::{Deaf, Files},
    script::{Nonce, Script},
    session::only,
};
use crate::model::{Outcome, Value};

const START: &str = concat!(
    include_str!("places.sh"),
    include_str!("job_folder.sh"),
    include_str!("job_start.sh"),
    "find_job\nif is_begun; then fail \"there is a job $arg_id already\"; fi\nstart_job\nchanged\n"
);
const RUN: &str = concat!(
    include_str!("places.sh"),
    include_str!("job_folder.sh"),
    include_str!("job_start.sh"),
    include_str!("job_poll.sh"),
    include_str!("job_run.sh")
);
const POLL: &str = concat!(
    include_str!("places.sh"),
    include_str!("job_folder.sh"),
    include_str!("job_poll.sh"),
    "find_job\ntell_job\n"
);
const FORGET: &str = concat!(include_str!("places.sh"), include_str!("job_folder.sh"), include_str!("job_forget.sh"));
const KEEPER: &str = include_str!("job_keeper.sh");

/// What the end of a job that took too long may take, before its limit is ours.
const GRACE: Duration = Duration::from_secs(10);
/// How much of each stream of a job is fetched.
const OUTPUT_LIMIT: usize = 64 << 20;

/// How a job stands.
#[derive(Clone, Debug, PartialEq)]
pub enum JobState {
    Running,
    Finished(Box<Outcome>),
    /// The target has never heard of it, or has forgotten it.
    Absent,
    /// It may have started, and neither a result nor a process is there. The text says why.
    Lost(String),
}

/// What a target says of a job.
struct Answer {
    state: JobState,
    /// The host has booted since the job began.
    booted: bool,
    overdue: bool,
}

impl Session {
    /// Starts a payload that outlives the connection. `id` must be new to the target: if the answer is
    /// lost, [`Session::poll`] tells whether it started.
    pub async fn detach(&self, payload: Payload, id: &str, limit: Option<Duration>) -> Result<(), RemoteError> {
        self.may_change()?;
        let start = self.job(START, payload, id, limit)?;
        let outcome = self.run_step(Step { fenced: self.fenced, ..self.step(start, false) }).await?;
        lock_is_held(&outcome)?;
        match outcome.failed {
            true => Err(failed(id, &outcome)),
            false => Ok(()),
        }
    }

    /// Runs a payload that outlives the connection, and waits for it. Whoever asks again after the connection was lost
    /// waits for the same one, and hears what came of it: it runs once.
    pub async fn run_job(&self, payload: Payload, id: &str) -> Result<JobState, RemoteError> {
        let limit = self.surroundings.timeout.or(self.link.options.command_timeout);
        let step = self.step(self.job(RUN, payload, id, limit)?, false);
        let step = Step { fenced: self.fenced, timeout: limit.map(|limit| limit + GRACE), ..step };
        let answer = self.ask(id, step).await?;
        match limit.filter(|_| answer.overdue) {
            Some(limit) => Err(RemoteError::TimedOut(limit)),
            None => Ok(answer.state),
        }
    }

    pub async fn poll(&self, id: &str) -> Result<JobState, RemoteError> {
        let step = self.step(Payload::new(POLL).value("id", checked(id)?), false);
        Ok(self.ask(id, step).await?.state)
    }

    /// Whether the host has booted since the job began; `None` if it never did.
    pub async fn has_booted_since(&self, id: &str) -> Result<Option<bool>, RemoteError> {
        let step = self.step(Payload::new(POLL).value("id", checked(id)?), false);
        let answer = self.ask(id, step).await?;
        Ok((answer.state != JobState::Absent).then_some(answer.booted))
    }

    /// The payload that starts another as a job.
    fn job(
        &self,
        body: &'static str,
        payload: Payload,
        id: &str,
        limit: Option<Duration>,
    ) -> Result<Payload, RemoteError> {
        let capture = payload.capture;
        let step = self.step(payload, false);
        self.refuse_exposed(&step)?;
        let nonce = Nonce::random();
        let script = Script::alone(&Segment { steps: vec![step] }, &nonce);
        let script = script.map_err(|error| RemoteError::Protocol(error.to_string().into()))?;
        let seconds = limit.map_or(0, |limit| limit.as_secs_f64().ceil().max(1.0) as u64);
        Ok(Payload::new(body)
            .value("id", checked(id)?)
            .value("nonce", nonce.to_string())
            .value("ticket", nonce.name("ticket"))
            .flag("capture", capture)
            .hidden("script", &*script.bytes)
            .value("keeper", KEEPER)
            .value("limit", seconds.to_string()))
    }

    async fn ask(&self, id: &str, step: Step) -> Result<Answer, RemoteError> {
        let segment = Segment { steps: vec![step] };
        let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
        let files = Files::Keep { stdout: &mut stdout, stderr: &mut stderr, limit: OUTPUT_LIMIT };
        let answer = only(self.exchange(&segment, &Deaf, None, files, None).await?)?;
        lock_is_held(&answer)?;
        let booted = answer.data.contains_key("booted");
        let state = match answer.data.get("state").and_then(Value::as_str) {
            _ if answer.failed => return Err(failed(id, &answer)),
            Some("running") => JobState::Running,
            Some("finished") => finished(id, &answer, &stdout, &stderr)?,
            Some("lost") if booted => JobState::Lost(format!("the host has rebooted while the job {id} ran")),
            Some("lost") => JobState::Lost(format!("the job {id} ended without a result")),
            _ => JobState::Absent,
        };
        Ok(Answer { state, booted, overdue: answer.data.contains_key("overdue") })
    }

    /// Removes what the target keeps of a job that has ended.
    pub async fn forget(&self, id: &str) -> Result<(), RemoteError> {
        let outcome = self.run_one(Payload::new(FORGET).value("id", checked(id)?), false).await?;
        match outcome.failed {
            true => Err(failed(id, &outcome)),
            false => Ok(()),
        }
    }
}

/// What a job wrote is what a runner says, so it is read in the same way.
fn finished(id: &str, answer: &Outcome, stdout: &[u8], stderr: &[u8]) -> Result<JobState, RemoteError> {
    let nonsense = || RemoteError::Protocol(format!("the record of the job {id} is damaged").into());
    let nonce = answer.data.get("nonce").and_then(Value::as_str).and_then(Nonce::parse).ok_or_else(nonsense)?;
    let code = answer.data.get("code").and_then(Value::as_i64).ok_or_else(nonsense)?;
    let capture = answer.data.get("capture").and_then(Value::as_bool).unwrap_or_default();
    let mut reader = Reader::for_one(capture, &nonce);
    reader.push(Source::Stdout, stdout);
    reader.push(Source::Stderr, stderr);
    while let Some(event) = reader.next().map_err(|_| nonsense())? {
        if let Event::Finished { outcome, .. } = event {
            return Ok(JobState::Finished(outcome));
        }
    }
    let mut outcome = reader.cut_short(i32::try_from(code).unwrap_or(-1));
    outcome.failed = true;
    outcome.msg = match answer.data.contains_key("overdue") {
        true => "exceeded its timeout, and was ended".to_owned(),
        false => format!("was ended from outside (exit code {code})"),
    };
    Ok(JobState::Finished(Box::new(outcome)))
}

fn failed(id: &str, outcome: &Outcome) -> RemoteError {
    RemoteError::Job(Trouble::new(format!("job {id}: {}", outcome.msg)))
}

/// An id becomes the name of a folder.
fn checked(id: &str) -> Result<&str, RemoteError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    match !id.is_empty() && id.len() <= 200 && !id.starts_with('.') && id.chars().all(plain) {
        true => Ok(id),
        false => Err(RemoteError::Job(Trouble::new(format!("`{id}` cannot name a job")))),
    }
}
