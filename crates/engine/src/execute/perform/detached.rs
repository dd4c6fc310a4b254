//! What runs as_job from the connection: commands with `async`, which are asked for now and then, and what may disrupt
//! the host or take long, which is waited for.

use std::time::{Duration, Instant};

use crate::execute::{
    node::{NodeError, NodeRun},
    once::{Halt, Sending},
};
use crate::{
    model::{Disruption, Effects, EventKind, Outcome},
    remote::{JobState, Payload, Session},
};

/// What a command over its limit gets to end in, on the target.
const GRACE: Duration = Duration::from_secs(5);

impl NodeRun {
    /// `async`: starts the command on its own, and asks for it every `poll` seconds.
    pub(in crate::execute) async fn detached(&self, session: &Session, payload: Payload) -> Result<Outcome, NodeError> {
        let limit = self.task.detach.unwrap_or_default();
        if self.task.poll.is_zero() && payload.watch.is_some() {
            let msg = "with `poll: 0`, etcdrun cannot watch whether this stops a member of a cluster";
            let hint = "set `poll`, or `changed_when: false` if it changes nothing".to_owned();
            return Err(NodeError::Failed(Box::new(Outcome { refused: true, ..Outcome::failed(msg) }), Some(hint)));
        }
        let (id, told) = (self.once.job_id(), payload.told.clone());
        session.note_ledger(&self.context.options.run_id);
        self.start_job(session, payload, &id, limit).await?;
        if self.task.poll.is_zero() {
            return Ok(Outcome::changed().with("job", id).with("finished", false));
        }
        let started = Instant::now();
        let mut asked = 0;
        loop {
            if !self.context.interrupt.pause(self.task.poll).await {
                return Err(NodeError::failed(format!("interrupted; the command continues as job {id}")));
            }
            asked += 1;
            match session.poll(&id).await {
                // The host forgets it with the run: until it is on record here, the answer may be wanted again.
                Ok(JobState::Finished(mut outcome)) => {
                    outcome.tell(&told);
                    return self.known(outcome.with("job", id).with("finished", true));
                }
                Ok(JobState::Lost(why)) => return Err(in_doubt(&why)),
                Ok(JobState::Absent) => return Err(in_doubt(&format!("the host has no job {id}"))),
                Ok(JobState::Running) if started.elapsed() > limit + self.task.poll + GRACE => {
                    return Err(NodeError::failed(format!("still running after {}s", limit.as_secs_f64())));
                }
                Ok(JobState::Running) => self.running_event(asked),
                // The command outlives the connection; so does the wait for it.
                Err(error) if error.is_unreachable() && started.elapsed() < limit => self.running_event(asked),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Starts it, unless an earlier process has, or we ourselves before the connection was lost.
    async fn start_job(&self, session: &Session, payload: Payload, id: &str, limit: Duration) -> Result<(), NodeError> {
        let mut sending = Sending::new(Vec::new());
        let mut may_be_there = self.once.in_flight_since().is_some();
        loop {
            let started = match may_be_there {
                true => session.poll(id).await,
                false => Ok(JobState::Absent),
            };
            let result = match started {
                Ok(JobState::Absent) => session.detach(payload.clone(), id, Some(limit)).await,
                Ok(JobState::Lost(why)) => return Err(in_doubt(&why)),
                Ok(JobState::Running | JobState::Finished(_)) => return Ok(()),
                Err(error) => Err(error),
            };
            let Err(error) = result else { return Ok(()) };
            if !self.goes_again(&mut sending, &error).await {
                return Err(error.into());
            }
            may_be_there = true;
        }
    }

    /// Whether the payload runs as_job from the connection, because it may take that down with it, or take long. Raw
    /// commands have the ledger.
    pub(in crate::execute) fn runs_as_job(&self, effects: &Effects, check_mode: bool) -> bool {
        let disrupts = effects.disrupts > Disruption::No && !effects.opaque;
        disrupts && !check_mode && self.once.is_recorded()
    }

    /// Runs the payload as_job from the connection, and waits for it: once, however often the connection is lost.
    pub(in crate::execute) async fn as_job(
        &self,
        session: &Session,
        payload: Payload,
        effects: &Effects,
    ) -> Result<Outcome, NodeError> {
        session.note_ledger(&self.context.options.run_id);
        let (mut id, mut is_sent) = (self.once.job_id(), false);
        let mut sending = Sending::new(Vec::new());
        loop {
            // What has begun is asked for also when the lock is gone meanwhile.
            let state = match if is_sent { session.poll(&id).await } else { Ok(JobState::Absent) } {
                Ok(JobState::Absent) => session.run_job(payload.clone(), &id).await,
                known => known,
            };
            match state {
                Ok(JobState::Finished(outcome)) => return self.known(*outcome),
                Ok(JobState::Running) if sending.prepare_again(&self.context.interrupt, 0).await => {}
                Ok(JobState::Running) => {
                    return Err(NodeError::failed(format!("interrupted; it continues as job {id}")));
                }
                // It looks before it changes, so that it may look again.
                Ok(JobState::Lost(_)) if effects.disrupts < Disruption::Yes && payload.watch.is_none() => {
                    (id, is_sent) = (self.once.job_id(), false)
                }
                Ok(JobState::Lost(why)) => return Err(in_doubt(&why)),
                Ok(JobState::Absent) => return Err(in_doubt(&format!("the host has no job {id}"))),
                Err(error) => {
                    if !self.goes_again(&mut sending, &error).await {
                        return Err(error.into());
                    }
                    is_sent = true;
                }
            }
        }
    }

    /// The job in which an action of the engine reboots the host; or none, if an earlier process has told it to, and it
    /// has booted since.
    pub(in crate::execute) async fn reboot_job(&self, session: &Session) -> Result<Option<String>, NodeError> {
        session.note_ledger(&self.context.options.run_id);
        let id = self.once.job_id();
        if self.once.in_flight_since().is_none() {
            return Ok(Some(id));
        }
        match session.has_booted_since(&id).await? {
            Some(true) => Ok(None),
            // It was told to, and has not; it is told again, as another job.
            Some(false) => Ok(Some(self.once.job_id())),
            None => Ok(Some(id)),
        }
    }

    fn running_event(&self, attempt: u32) {
        let (node, msg) = (self.info.clone(), "still running".to_owned());
        self.context.emitter.emit(EventKind::NodeRetry { node, attempt, of: 0, msg });
    }
}

fn in_doubt(why: &str) -> NodeError {
    NodeError::halted(Halt::InDoubt, Outcome::failed(format!("in doubt: {why}")))
}
