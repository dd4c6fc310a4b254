//! Everything that happens in a run, as it happens. Reporters consume these; nothing else prints.
//!
//! The JSON form of these types is a public interface (`--json`, documented in docs/events.md);
//! `EVENT_VERSION` goes up when a field changes its meaning or disappears.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, mpsc},
};

use serde::{Deserialize, Serialize};

use super::{Diff, Ending, Forecast, HostName, MaskedStream, Masker, Outcome, PlanCounts, Status, Value, ValueMap};

pub const EVENT_VERSION: u32 = 1;

#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// Milliseconds since the Unix epoch.
    pub at: i64,
    #[serde(flatten)]
    pub kind: EventKind,
}

/// A node as reporters speak of it.
#[derive(Clone, Debug, Serialize)]
pub struct NodeInfo {
    pub id: Arc<str>,
    pub play: Arc<str>,
    pub task: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<Arc<str>>,
    pub module: &'static str,
    /// Its message is what the user wants to see.
    #[serde(skip)]
    pub is_message: bool,
    /// What its result says about a rollout.
    #[serde(skip)]
    pub rollout: Option<RolloutPart>,
    pub host: HostName,
    /// Where it runs, if that is not its own host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<HostName>,
    /// `file:line` of the task.
    pub place: Arc<str>,
    pub handler: bool,
    /// Where it stands in the graph, for those who tell things in the order of the playbook.
    #[serde(skip)]
    pub order: usize,
}

/// What a task's result says about a rollout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutPart {
    /// Which versions the cluster passes.
    Path,
    /// In which order its members take turns.
    Order,
    /// Which rules hold.
    Gate,
}

/// What reporters may show of an outcome; `no_log` has been applied.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Shown {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub msg: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rc: Option<i32>,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stdout: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub stderr: String,
    #[serde(skip_serializing_if = "ValueMap::is_empty")]
    pub data: ValueMap,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<Diff>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub unknown: bool,
    #[serde(skip_serializing_if = "Ending::is_own")]
    pub ending: Ending,
}

impl Shown {
    pub fn new(outcome: &Outcome, no_log: bool) -> Self {
        if no_log {
            let msg = "the result is hidden because of `no_log: true`".to_owned();
            return Self { msg, rc: outcome.rc, unknown: outcome.unknown, ending: outcome.ending, ..Self::default() };
        }
        Self {
            msg: outcome.msg.clone(),
            rc: outcome.rc,
            stdout: outcome.stdout.clone(),
            stderr: outcome.stderr.clone(),
            data: outcome.data.clone(),
            diff: outcome.diff.clone(),
            unknown: outcome.unknown,
            ending: outcome.ending,
        }
    }

    fn mask(&mut self, masker: &Masker) {
        [&mut self.msg, &mut self.stdout, &mut self.stderr].into_iter().for_each(|text| masker.mask_in_place(text));
        masker.mask_map(&mut self.data);
        self.diff.iter_mut().for_each(|diff| masker.mask_diff(diff));
    }
}

#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum EventKind {
    RunStarted {
        version: u32,
        run: Arc<str>,
        playbook: String,
        /// Nodes that stand for work; virtual ones do not count.
        nodes: usize,
        hosts: usize,
        check_mode: bool,
    },
    PlayStarted {
        play: Arc<str>,
        hosts: usize,
    },
    NodeStarted {
        node: Arc<NodeInfo>,
    },
    /// Live output of a running command.
    NodeOutput {
        node: Arc<NodeInfo>,
        stderr: bool,
        text: String,
    },
    /// Bytes of a file on their way.
    NodeProgress {
        node: Arc<NodeInfo>,
        done: u64,
        total: u64,
    },
    /// `until` did not hold, or a detached command is still running; it is tried again.
    NodeRetry {
        node: Arc<NodeInfo>,
        attempt: u32,
        of: u32,
        msg: String,
    },
    /// One item of a loop.
    ItemFinished {
        node: Arc<NodeInfo>,
        item: Value,
        status: Status,
        result: Shown,
    },
    NodeFinished {
        node: Arc<NodeInfo>,
        status: Status,
        seconds: f64,
        result: Shown,
        /// What a person could do about a failure, where that is known.
        #[serde(skip_serializing_if = "Option::is_none")]
        hint: Option<String>,
        /// For `not_run`: the node whose failure is the cause.
        #[serde(skip_serializing_if = "Option::is_none")]
        because: Option<Arc<str>>,
    },
    Warning {
        msg: String,
    },
    /// A node is not what it was when it was planned, so the plan is not run.
    Moved {
        id: Arc<str>,
        host: HostName,
        task: Arc<str>,
        /// `None` if the plan had no such node.
        planned: Option<Forecast>,
        now: Option<Forecast>,
        /// What was there when it was planned, and what is there now.
        diff: Vec<Diff>,
    },
    /// The first Ctrl-C: running nodes end, no new ones start.
    Interrupted,
    RunFinished {
        run: Arc<str>,
        seconds: f64,
        /// The exit code's name in the documented table.
        result: RunResult,
        /// Commands started on hosts: fused tasks share one.
        execs: u64,
        /// In check mode: how many nodes would change something.
        #[serde(skip_serializing_if = "Option::is_none")]
        plan: Option<PlanCounts>,
    },
}

impl EventKind {
    /// Takes secrets out of all that comes of running something. Live output is masked as a stream.
    fn mask(&mut self, masker: &Masker) {
        match self {
            Self::NodeRetry { msg, .. } | Self::Warning { msg } => masker.mask_in_place(msg),
            Self::ItemFinished { item, result, .. } => {
                masker.mask_value(item);
                result.mask(masker);
            }
            Self::NodeFinished { result, hint, .. } => {
                result.mask(masker);
                hint.iter_mut().for_each(|hint| masker.mask_in_place(hint));
            }
            Self::Moved { diff, .. } => diff.iter_mut().for_each(|diff| masker.mask_diff(diff)),
            // Names of files, plays, tasks and hosts: what is written there is no secret.
            Self::RunStarted { .. }
            | Self::PlayStarted { .. }
            | Self::NodeStarted { .. }
            | Self::NodeOutput { .. }
            | Self::NodeProgress { .. }
            | Self::Interrupted
            | Self::RunFinished { .. } => {}
        }
    }
}

/// How a run ended; each has its own exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunResult {
    Success,
    Failed,
    Unreachable,
    GateRefused,
    LockHeld,
    /// The hosts are not as they were planned.
    Moved,
    Interrupted,
}

/// Where events go, and the one place where secrets are taken out of them. Cheap to clone; emitting
/// never blocks and never fails.
#[derive(Clone, Debug)]
pub struct Emitter {
    sender: Option<mpsc::Sender<Event>>,
    masker: Masker,
    streams: Arc<Mutex<Streams>>,
}

/// Live output on its way; by node, `true` for standard error.
type Streams = HashMap<(Arc<str>, bool), MaskedStream>;

impl Emitter {
    pub fn channel() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender: Some(sender), ..Self::silent() }, receiver)
    }

    /// For callers that want no events.
    pub fn silent() -> Self {
        Self { sender: None, masker: Masker::default(), streams: Arc::default() }
    }

    pub fn with_masker(self, masker: Masker) -> Self {
        Self { masker, ..self }
    }

    pub fn emit(&self, mut kind: EventKind) {
        match &kind {
            EventKind::NodeOutput { node, stderr, text } => return self.output(node, *stderr, text.as_bytes()),
            EventKind::NodeFinished { node, .. } if self.has_output() => {
                [false, true].iter().for_each(|stderr| self.end_output(node, *stderr));
            }
            _ => {}
        }
        kind.mask(&self.masker);
        self.send(kind);
    }

    /// A piece of a running command's output. A secret may be cut in two by the end of a piece, and so
    /// may a character, so some of it may come with the next one.
    pub fn output(&self, node: &Arc<NodeInfo>, stderr: bool, piece: &[u8]) {
        let text = {
            let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
            let stream = streams.entry((node.id.clone(), stderr)).or_insert_with(|| self.masker.stream());
            stream.push(piece)
        };
        self.send_output(node, stderr, text);
    }

    /// Whether any output is on its way.
    fn has_output(&self) -> bool {
        !self.streams.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    /// No more of this output will be shown.
    pub fn end_output(&self, node: &Arc<NodeInfo>, stderr: bool) {
        let stream = self.streams.lock().unwrap_or_else(PoisonError::into_inner).remove(&(node.id.clone(), stderr));
        if let Some(mut stream) = stream {
            self.send_output(node, stderr, stream.finish());
        }
    }

    fn send_output(&self, node: &Arc<NodeInfo>, stderr: bool, text: String) {
        if !text.is_empty() {
            self.send(EventKind::NodeOutput { node: node.clone(), stderr, text });
        }
    }

    fn send(&self, kind: EventKind) {
        let Some(sender) = &self.sender else { return };
        let at = jiff::Timestamp::now().as_millisecond();
        // A reporter that is gone has nothing more to say; the run goes on.
        let _ = sender.send(Event { at, kind });
    }
}
