//! At most once: what is recorded before and after a node, and how a lost connection is made good.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::execute::{Interrupt, node::NodeError};
use crate::{
    graph::NodeIndex,
    is_off,
    model::{Effects, Outcome, RunResult, Status},
    playbook::Task,
    policy,
    remote::{Entry, RemoteError, Segment, Session, Step, StepSink},
    repair,
    state::{Recorder, Settled},
    task::Sets,
};

/// How long to try to reach a host again that was lost while it ran a command.
const RECONNECT_LIMIT: Duration = Duration::from_secs(30);
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// Why nothing more may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::execute) enum Halt {
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
    pub(in crate::execute) fn status(self) -> Status {
        match self {
            Self::InDoubt | Self::MemberLost | Self::Unlocked => Status::Failed,
            Self::Withheld | Self::Unrecorded => Status::NotRun,
        }
    }

    /// How a run ends that was halted for it.
    pub(in crate::execute) fn result(self) -> RunResult {
        match self {
            Self::Unlocked => RunResult::LockHeld,
            Self::MemberLost | Self::Withheld => RunResult::GateRefused,
            Self::InDoubt | Self::Unrecorded => RunResult::Failed,
        }
    }
}

/// The journal of one node: what is on record of it, and the names of its commands in the ledger of its target.
pub(in crate::execute) struct Once {
    recorder: Recorder,
    run: Arc<str>,
    index: usize,
    id: Arc<str>,
    task: Arc<Task>,
    live: bool,
    /// It is on record that it is about to change something.
    intended: AtomicBool,
    /// It was sent a second time, after the connection was lost.
    resent: AtomicBool,
    /// Counts its commands, so that each item and attempt has its own.
    commands: AtomicU32,
}

impl Once {
    /// `live` if its commands report their output as it comes.
    pub(in crate::execute) fn new(
        recorder: Recorder,
        run: Arc<str>,
        (index, id): (NodeIndex, Arc<str>),
        task: Arc<Task>,
        live: bool,
    ) -> Self {
        let (intended, resent, commands) = (AtomicBool::default(), AtomicBool::default(), AtomicU32::default());
        Self { recorder, run, index: index.index(), id, task, live, intended, resent, commands }
    }

    /// However often it is prepared, its commands have the same names.
    pub(in crate::execute) fn start_over(&self) {
        self.commands.store(0, Ordering::Relaxed);
    }

    pub(in crate::execute) fn is_recorded(&self) -> bool {
        self.recorder.is_some()
    }

    /// Whether doing it twice could do harm. `changed_when: false` is trusted.
    fn must_run_once(&self, effects: &Effects, check_mode: bool) -> bool {
        effects.opaque && !check_mode && !self.task.says_unchanged() && self.is_recorded()
    }

    /// Whether it has to be on record before it starts.
    pub(in crate::execute) fn can_change(&self, effects: &Effects, check_mode: bool) -> bool {
        let converges = !(effects.read_only || effects.opaque);
        !check_mode && (converges || self.task.detach.is_some() || self.must_run_once(effects, check_mode))
    }

    /// Puts on record that the node is about to change something, once. If that fails, it must not.
    pub(in crate::execute) async fn intend(&self) -> Result<(), NodeError> {
        if self.intended.swap(true, Ordering::Relaxed) || self.in_flight_since().is_some() || is_off(policy::JOURNAL) {
            return Ok(());
        }
        self.recorder.intent(self.index, &self.id).await.map_err(|error| {
            let outcome = Outcome::failed(format!("not run, since it cannot be recorded: {error}"));
            NodeError::Halted(Halt::Unrecorded, Box::new(outcome), error.help())
        })
    }

    /// The next command of this node in the target's ledger, if it needs one: the same name each time.
    pub(in crate::execute) fn entry(&self, effects: &Effects, check_mode: bool) -> Option<Entry> {
        let is_needed = self.must_run_once(effects, check_mode) && !is_off(policy::LEDGER);
        is_needed.then(|| Entry {
            run: self.run.clone(),
            name: self.next_name(),
            since: self.in_flight_since().filter(|_| !is_off(repair::IN_DOUBT)),
            live: self.live,
        })
    }

    /// Graph, node, how often it has failed before, and which of its commands.
    fn next_name(&self) -> String {
        let round = self.recorder.past(self.index).map_or(0, |past| past.round);
        let number = self.commands.fetch_add(1, Ordering::Relaxed);
        format!("{}-{}-{round}-{number}", self.recorder.graph(), self.index)
    }

    /// Names the next command as a job on its target.
    pub(in crate::execute) fn job_id(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '_' };
        let run: String = self.run.chars().map(plain).collect();
        format!("{run}-{}", self.next_name())
    }

    /// How many seconds ago an earlier process began this node, if it did not hear how it ended.
    pub(in crate::execute) fn in_flight_since(&self) -> Option<u64> {
        let began = self.recorder.past(self.index)?.in_flight.as_ref()?;
        Some(began.seconds_ago())
    }

    pub(in crate::execute) fn was_resent(&self) -> bool {
        self.resent.load(Ordering::Relaxed)
    }

    /// A node that was in flight when an earlier process ended may have changed what it now finds in order.
    /// Handlers and conditions must not miss that.
    pub(in crate::execute) fn as_resumed(&self, mut outcome: Outcome, status: Status) -> (Outcome, Status) {
        let was_begun = || self.in_flight_since().is_some() || self.was_resent();
        let intended = self.intended.load(Ordering::Relaxed);
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
    pub(in crate::execute) fn not_started(&self) {
        let how = Settled { status: Status::NotRun, changed: false, doubt: false, seconds: 0.0, left: None };
        self.recorder.settled(self.index, &self.id, how);
    }

    pub(in crate::execute) fn settled(&self, outcome: &Outcome, status: Status, doubt: bool, seconds: f64) {
        let sets = !matches!(self.task.module.traits.sets, Sets::Nothing);
        let leaves = self.task.register.is_some() || sets || status == Status::Rescued;
        let left = leaves.then_some(outcome);
        let how = Settled { status, changed: outcome.changed, doubt, seconds, left };
        self.recorder.settled(self.index, &self.id, how);
    }
}

/// Steps on their way, which may have to be sent again.
pub(in crate::execute) struct Sending {
    segment: Segment,
    began: Instant,
    lost: Option<Instant>,
    pause: Duration,
}

impl Sending {
    pub(in crate::execute) fn new(steps: Vec<Step>) -> Self {
        Self { segment: Segment { steps }, began: Instant::now(), lost: None, pause: FIRST_PAUSE }
    }

    /// Sends the steps, and those that have not ended once more if the connection is lost. `lost` says whether they may be, and
    /// how many of them have ended.
    pub(in crate::execute) async fn go(
        mut self,
        session: &Session,
        sink: &dyn StepSink,
        stop: &CancellationToken,
        interrupt: &Interrupt,
        lost: impl Fn(&mut Self, &RemoteError) -> Option<usize>,
    ) -> Result<(), RemoteError> {
        loop {
            let Err(error) = session.run_until(&self.segment, sink, stop).await else { return Ok(()) };
            match lost(&mut self, &error) {
                Some(ended) if self.prepare_again(interrupt, ended).await => {}
                _ => return Err(error),
            }
        }
    }

    /// Whether steps that have not ended may be sent again. The ledger on the target sees to it that commands
    /// run once, and other modules look before they change; so they may be, once it is sure that they were
    /// sent, for as long as a host may take to come back. `once` is that of the node under way.
    pub(in crate::execute) fn may_go_again(&mut self, once: &Once, error: &RemoteError) -> bool {
        if let RemoteError::Lost(_) = error {
            self.lost = Some(Instant::now());
        }
        let in_time = self.lost.is_some_and(|at| at.elapsed() < RECONNECT_LIMIT);
        let again = error.is_unreachable() && in_time && once.is_recorded();
        if again {
            once.resent.store(true, Ordering::Relaxed);
        }
        again
    }

    /// Waits a moment, and leaves out the first `ended` steps. False if the run is interrupted meanwhile.
    pub(in crate::execute) async fn prepare_again(&mut self, interrupt: &Interrupt, ended: usize) -> bool {
        if !interrupt.pause(self.pause).await {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        state::{Line, NodeKey, Record},
        testing::{inventory, run},
    };

    /// The journal of the first task of a play, where nothing is kept.
    fn once(task: &str) -> Once {
        let (run, _) = run(&inventory("hosts: { a: {} }\n"), &format!("- hosts: all\n  tasks:\n    - {task}\n"));
        let index = run.graph.work().next().unwrap();
        let task = run.graph.task_of(index).unwrap().clone();
        Once::new(run.recorder, "run/1".into(), (index, "id".into()), task, false)
    }

    #[test]
    fn what_only_looks_is_on_no_record() {
        let once = once("{ say: {} }");
        assert!(once.can_change(&Effects::converging(), false));
        assert!(!once.can_change(&Effects::converging(), true));
        assert!(!once.can_change(&Effects::read_only(), false));
        // Without a journal, no later process could know what became of a command.
        assert!(once.entry(&Effects::opaque(), false).is_none());
    }

    /// A host that has booted since then lost its ledger, perhaps: it says so only if it knows how long ago the command was sent.
    #[test]
    fn a_host_is_told_how_long_ago_a_command_was_sent_first() {
        let folder = tempfile::tempdir().unwrap();
        let play = "- hosts: all\n  tasks:\n    - command: { argv: ['true'] }\n";
        let (run, _) = run(&inventory("hosts: { a: {} }\n"), play);
        let index = run.graph.work().next().unwrap();
        let node = u32::try_from(index.index()).unwrap();
        let record = Record::Intent { key: NodeKey { graph: 0, node, id: "id".into() }, up: None };
        let began = Line { at: jiff::Timestamp::now().as_millisecond() - 7_000, record };
        let since = |lines: &[Line]| {
            let recorder = Recorder::behind(folder.path(), lines, &run.graph);
            let task = run.graph.task_of(index).unwrap().clone();
            let once = Once::new(recorder, "run".into(), (index, "id".into()), task, false);
            once.entry(&Effects::opaque(), false).unwrap().since
        };
        assert!(since(&[began]).is_some_and(|seconds| seconds >= 7));
    }

    #[test]
    fn commands_have_the_same_names_however_often_they_are_prepared() {
        let once = once("{ say: {} }");
        let names = || [once.job_id(), once.job_id()];
        let first = names();
        assert_ne!(first[0], first[1]);
        assert!(first[0].starts_with("run_1-"), "{}", first[0]);
        once.start_over();
        assert_eq!(names(), first);
    }

    #[tokio::test]
    async fn a_node_that_was_sent_twice_counts_as_changed() {
        let once = once("{ say: {} }");
        once.intend().await.map_err(|_| "not recorded").unwrap();
        assert_eq!(once.as_resumed(Outcome::ok(), Status::Ok).1, Status::Ok);
        once.resent.store(true, Ordering::Relaxed);
        let (outcome, status) = once.as_resumed(Outcome::ok(), Status::Ok);
        assert!(outcome.changed && status == Status::Changed);
        assert_eq!(once.as_resumed(Outcome::failed("no"), Status::Failed).1, Status::Failed);
    }

    #[test]
    fn nothing_is_sent_again_that_is_on_no_record_or_was_refused() {
        let once = once("{ say: {} }");
        let mut sending = Sending::new(Vec::new());
        assert!(!sending.may_go_again(&once, &RemoteError::Lost("gone".into())));
        assert!(!sending.may_go_again(&once, &RemoteError::Protocol("nonsense".into())));
        assert!(!once.was_resent());
    }
}
