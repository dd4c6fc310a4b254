//! At most once: what is recorded before and after a node, and how a lost connection is made good.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::{
    context::Context,
    node::{NodeRun, Trouble},
};
use crate::{
    model::{Effects, Ending, EventKind, Outcome, RunResult, Status},
    remote::{Entry, RemoteError, Segment, Step},
    state::{Done, Settled},
    task::Sets,
};

/// How long to try to reach a host again that was lost while it ran a command.
const RECONNECT_LIMIT: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why nothing more may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Halt {
    InDoubt,
    /// A member of a cluster was taken down, or may have been.
    MemberLost,
    /// Somebody broke the lock.
    Unlocked,
    /// It was not run, because a member was lost.
    Withheld,
    /// It was not run, because it could not be recorded.
    Unrecorded,
}

impl Halt {
    /// Neither `ignore_errors` nor a rescue knows what was done, or has a say in whether a cluster can spare a member.
    pub(super) fn status(self) -> Status {
        match self {
            Self::InDoubt | Self::MemberLost | Self::Unlocked => Status::Failed,
            Self::Withheld | Self::Unrecorded => Status::NotRun,
        }
    }

    /// How a run ends that was halted for it.
    pub(super) fn result(self) -> RunResult {
        match self {
            Self::Unlocked => RunResult::LockHeld,
            Self::MemberLost | Self::Withheld => RunResult::GateRefused,
            Self::InDoubt | Self::Unrecorded => RunResult::Failed,
        }
    }
}

/// What is known of a node while it runs, beside its outcome.
#[derive(Debug, Default)]
pub(super) struct Marks {
    /// It is on record that it is about to change something.
    intended: AtomicBool,
    /// It was sent a second time, after the connection was lost.
    resent: AtomicBool,
}

impl NodeRun {
    /// An outcome that says what happened, rather than that nobody knows; and that nothing happened which must not.
    pub(super) fn known(&self, outcome: Outcome) -> Result<Outcome, Trouble> {
        match outcome.ending {
            Ending::Own | Ending::TimedOut => Ok(outcome),
            Ending::InDoubt => {
                let msg = format!("in doubt: {}", outcome.msg);
                Err(Trouble::halted(Halt::InDoubt, Outcome { msg, ..outcome }))
            }
            Ending::MemberLost => Err(self.member_lost(outcome)),
            Ending::LockLost => Err(Trouble::halted(Halt::Unlocked, outcome)),
        }
    }

    /// Whether the playbook says that a command changes nothing.
    pub(super) fn says_unchanged(&self) -> bool {
        self.task.changed_when.iter().any(|condition| condition.value.trim() == "false")
    }

    /// Whether doing it twice could do harm. Who says that a command changes nothing is taken at his word.
    fn must_run_once(&self, effects: &Effects, check_mode: bool) -> bool {
        effects.opaque && !check_mode && !self.says_unchanged() && self.context.recorder.is_some()
    }

    /// Whether it has to be on record before it starts.
    pub(super) fn can_change(&self, effects: &Effects, check_mode: bool) -> bool {
        let converges = !(effects.read_only || effects.opaque);
        !check_mode && (converges || self.task.detach.is_some() || self.must_run_once(effects, check_mode))
    }

    /// Puts on record that the node is about to change something, once. If that fails, it must not.
    pub(super) async fn intend(&self) -> Result<(), Trouble> {
        if self.marks.intended.swap(true, Ordering::Relaxed) || self.in_flight_since().is_some() {
            return Ok(());
        }
        self.context.recorder.intent(self.index.index(), &self.info.id).await.map_err(|error| {
            let outcome = Outcome::failed(format!("not run, since it cannot be recorded: {error}"));
            Trouble::Halted(Halt::Unrecorded, Box::new(outcome), error.help())
        })
    }

    /// The next command of this node in the target's ledger, if it needs one: the same name each time.
    pub(super) fn entry(&self, effects: &Effects, check_mode: bool) -> Option<Entry> {
        self.must_run_once(effects, check_mode).then(|| Entry {
            run: self.context.options.run_id.clone(),
            name: self.next_name(),
            since: self.in_flight_since(),
            live: self.context.options.live_output && !self.task.no_log,
        })
    }

    /// Graph, node, how often it has failed before, and which of its commands.
    pub(super) fn next_name(&self) -> String {
        let recorder = &self.context.recorder;
        let round = recorder.past(self.index.index()).map_or(0, |past| past.round);
        let number = self.jobs.fetch_add(1, Ordering::Relaxed);
        format!("{}-{}-{round}-{number}", recorder.graph(), self.index.index())
    }

    /// How many seconds ago an earlier process began this node, if nobody heard how it ended.
    pub(super) fn in_flight_since(&self) -> Option<u64> {
        let began = self.context.recorder.past(self.index.index())?.in_flight.as_ref()?;
        Some(began.seconds_ago())
    }

    pub(super) fn was_resent(&self) -> bool {
        self.marks.resent.load(Ordering::Relaxed)
    }

    fn lost_event(&self, error: &RemoteError) {
        let msg = format!("{error}; asking the host what became of it");
        self.context.emitter.emit(EventKind::NodeRetry { node: self.info.clone(), attempt: 1, of: 0, msg });
    }

    /// A node that was in flight when an earlier process ended may have changed what it now finds in order.
    /// Handlers and conditions must not miss that.
    pub(super) fn as_resumed(&self, mut outcome: Outcome, status: Status) -> (Outcome, Status) {
        let was_begun = || self.in_flight_since().is_some() || self.was_resent();
        let intended = self.marks.intended.load(Ordering::Relaxed);
        if status == Status::Ok && !self.task.effects.opaque && intended && was_begun() {
            outcome.changed = true;
            outcome.msg =
                "already as wanted; the task was running when the run was interrupted, so it counts as changed"
                    .to_owned();
            return (outcome, Status::Changed);
        }
        (outcome, status)
    }

    /// It was to run behind others, and certainly has not.
    pub(super) fn not_started(&self) {
        let how = Settled { status: Status::NotRun, changed: false, doubt: false, seconds: 0.0, left: None };
        self.context.recorder.settled(self.index.index(), &self.info.id, how);
    }

    pub(super) fn settled(&self, outcome: &Outcome, status: Status, doubt: bool, seconds: f64) {
        let sets = !matches!(self.task.module.traits.sets, Sets::Nothing);
        let leaves = self.task.register.is_some() || sets || status == Status::Rescued;
        let left = leaves.then_some(outcome);
        let how = Settled { status, changed: outcome.changed, doubt, seconds, left };
        self.context.recorder.settled(self.index.index(), &self.info.id, how);
    }

    /// Takes over what the node left behind in an earlier process.
    pub(super) fn inherit(&self, done: &Done) {
        if let Some(left) = &done.left {
            self.restore(left, done.status);
        }
        if self.task.effects.opaque {
            self.inherit_ledger();
        }
    }

    /// An earlier process has left a ledger where this node ran; it goes away with those of this one.
    fn inherit_ledger(&self) {
        let scope = self.context.scope(self.play, self.host, &self.task);
        // Where it ran may depend on more than is known now. Then hosts tidy up by themselves, later.
        if let Ok(session) = self.session(&scope) {
            session.note_ledger(&self.context.options.run_id);
        }
    }
}

/// Steps on their way, which may have to be sent again.
pub(super) struct Sending {
    segment: Segment,
    began: Instant,
    lost: Option<Instant>,
    pause: Duration,
}

impl Sending {
    pub(super) fn new(steps: Vec<Step>) -> Self {
        Self { segment: Segment { steps }, began: Instant::now(), lost: None, pause: FIRST_PAUSE }
    }

    pub(super) fn segment(&self) -> &Segment {
        &self.segment
    }

    /// Whether steps that have not ended may be sent again. The ledger on the target sees to it that commands
    /// run once, and other modules look before they change; so they may be, once it is sure that they were
    /// sent, for as long as a host may take to come back. `node` is the one under way.
    pub(super) fn may_go_again(&mut self, node: &NodeRun, error: &RemoteError) -> bool {
        if let RemoteError::Lost(_) = error {
            self.lost = Some(Instant::now());
        }
        let in_time = self.lost.is_some_and(|at| at.elapsed() < RECONNECT_LIMIT);
        let again = error.is_unreachable() && in_time && node.context.recorder.is_some();
        if again {
            node.lost_event(error);
            node.marks.resent.store(true, Ordering::Relaxed);
        }
        again
    }

    /// Waits a moment, and leaves out the first `ended` steps. False if the run is interrupted meanwhile.
    pub(super) async fn prepare_again(&mut self, context: &Context, ended: usize) -> bool {
        if !context.pause(self.pause).await {
            return false;
        }
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        let steps = &mut self.segment.steps;
        steps.drain(..ended.min(steps.len()));
        let elapsed = self.began.elapsed().as_secs() + 1;
        for entry in steps.iter_mut().filter_map(|step| step.entry.as_mut()) {
            entry.since = entry.since.max(Some(elapsed));
        }
        true
    }
}
