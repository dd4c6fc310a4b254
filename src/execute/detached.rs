//! `async`: commands that run on their own, and are asked for now and then.

use std::time::{Duration, Instant};

use super::node::{NodeRun, Trouble};
use crate::{
    model::{EventKind, Outcome},
    remote::{JobState, Payload, Session},
};

/// What a command over its limit gets to end in, on the target.
const GRACE: Duration = Duration::from_secs(5);

impl NodeRun {
    /// `async`: starts the command on its own, and asks for it every `poll` seconds.
    pub(super) async fn detached(&self, session: &Session, payload: Payload) -> Result<Outcome, Trouble> {
        let limit = self.task.detach.unwrap_or_default();
        let id = self.job_id();
        if !self.is_started(session, &id).await? {
            session.detach(payload, &id, Some(limit)).await?;
        }
        if self.task.poll.is_zero() {
            return Ok(Outcome::changed().with("job", id).with("finished", false));
        }
        let started = Instant::now();
        let mut asked = 0;
        loop {
            if !self.context.pause(self.task.poll).await {
                return Err(Trouble::failed(format!("interrupted; the command goes on by itself as job {id}")));
            }
            asked += 1;
            match session.poll(&id).await {
                Ok(JobState::Finished(outcome)) => {
                    session.forget(&id).await?;
                    return Ok(outcome.with("job", id).with("finished", true));
                }
                Ok(JobState::Lost(why)) => return Err(in_doubt(&why)),
                Ok(JobState::Absent) => return Err(in_doubt(&format!("the host knows no job {id}"))),
                Ok(JobState::Running) if started.elapsed() > limit + self.task.poll + GRACE => {
                    return Err(Trouble::failed(format!("still running after {}s", limit.as_secs_f64())));
                }
                Ok(JobState::Running) => self.running_event(asked),
                // The command outlives the connection; so does the wait for it.
                Err(error) if error.is_unreachable() && started.elapsed() < limit => self.running_event(asked),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Names a detached command on its target.
    fn job_id(&self) -> String {
        let run = &self.context.options.run_id;
        let run: String = run.chars().map(|c| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' }).collect();
        format!("{run}-{}", self.next_name())
    }

    /// Whether an earlier process has started it already.
    async fn is_started(&self, session: &Session, id: &str) -> Result<bool, Trouble> {
        if self.in_flight_since().is_none() {
            return Ok(false);
        }
        match session.poll(id).await? {
            JobState::Absent => Ok(false),
            JobState::Lost(why) => Err(in_doubt(&why)),
            JobState::Running | JobState::Finished(_) => Ok(true),
        }
    }

    fn running_event(&self, attempt: u32) {
        let (node, msg) = (self.info.clone(), "still running".to_owned());
        self.context.emitter.emit(EventKind::NodeRetry { node, attempt, of: 0, msg });
    }
}

fn in_doubt(why: &str) -> Trouble {
    Trouble::Doubt(Box::new(Outcome::failed(format!("in doubt: {why}"))))
}
