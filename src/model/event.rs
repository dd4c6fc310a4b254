//! Everything that happens in a run, as it happens. Reporters consume these; nothing else prints.
//!
//! The JSON form of these types is a public interface (`--json`, documented in docs/events.md);
//! `EVENT_VERSION` goes up when a field changes its meaning or disappears.

use std::sync::{Arc, mpsc};

use serde::Serialize;

use super::{Diff, HostName, Outcome, Status, Value, ValueMap};

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
    pub host: HostName,
    /// Where it runs, if that is not its own host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<HostName>,
    /// `file:line` of the task.
    pub place: Arc<str>,
    pub handler: bool,
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
}

impl Shown {
    pub fn new(outcome: &Outcome, no_log: bool) -> Self {
        if no_log {
            let msg = "the result is hidden because of `no_log: true`".to_owned();
            return Self { msg, rc: outcome.rc, unknown: outcome.unknown, ..Self::default() };
        }
        Self {
            msg: outcome.msg.clone(),
            rc: outcome.rc,
            stdout: outcome.stdout.clone(),
            stderr: outcome.stderr.clone(),
            data: outcome.data.clone(),
            diff: outcome.diff.clone(),
            unknown: outcome.unknown,
        }
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
    /// The first Ctrl-C: running nodes end, no new ones start.
    Interrupted,
    RunFinished {
        run: Arc<str>,
        seconds: f64,
        /// The exit code's name in the documented table.
        result: RunResult,
        /// Commands started on hosts: fused tasks share one.
        execs: u64,
    },
}

/// How a run ended; each has its own exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunResult {
    Success,
    Failed,
    Unreachable,
    GateRefused,
    LockHeld,
    Interrupted,
}

/// Where events go. Cheap to clone; emitting never blocks and never fails.
#[derive(Clone, Debug)]
pub struct Emitter {
    sender: Option<mpsc::Sender<Event>>,
}

impl Emitter {
    pub fn channel() -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel();
        (Self { sender: Some(sender) }, receiver)
    }

    /// For callers that want no events.
    pub fn silent() -> Self {
        Self { sender: None }
    }

    pub fn emit(&self, kind: EventKind) {
        let Some(sender) = &self.sender else { return };
        let at = jiff::Timestamp::now().as_millisecond();
        // A reporter that is gone has nothing more to say; the run goes on.
        let _ = sender.send(Event { at, kind });
    }
}
