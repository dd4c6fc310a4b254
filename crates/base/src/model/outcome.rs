//! What came of one task on one target.

use serde::{Deserialize, Serialize};

use super::{Value, ValueMap};

/// How a task ended. `Unreachable` is about the host, the others are about the task.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    Ok,
    Changed,
    Skipped,
    Failed,
    /// Failed, and `ignore_errors` said to go on.
    Ignored,
    /// Failed, and the rescue part of its block takes over.
    Rescued,
    Unreachable,
    /// Never started, because something it depends on did not succeed.
    NotRun,
}

impl Status {
    /// The word for it, as in the JSON form.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Changed => "changed",
            Self::Skipped => "skipped",
            Self::Failed => "failed",
            Self::Ignored => "ignored",
            Self::Rescued => "rescued",
            Self::Unreachable => "unreachable",
            Self::NotRun => "not_run",
        }
    }

    /// Whether dependants on success may start.
    pub fn satisfies(self) -> bool {
        matches!(self, Self::Ok | Self::Changed | Self::Skipped | Self::Ignored)
    }
}

/// One file, or other text, before and after.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diff {
    /// What is being compared, usually a path.
    pub label: String,
    pub before: String,
    pub after: String,
}

/// How a step came to its end, where that was not its own doing. It is no result of the step, which could be forged or too large.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ending {
    /// By itself: it succeeded, or failed.
    #[default]
    Own,
    /// It took too long, and was ended.
    TimedOut,
    /// It may have run, and its target cannot tell.
    InDoubt,
    /// A member of a cluster was stopped or restarted by it.
    MemberLost,
    /// It did not run, because the lock of the run was broken.
    LockLost,
}

impl Ending {
    pub fn is_own(&self) -> bool {
        *self == Self::Own
    }

    /// As a target says it.
    pub fn parse(word: &str) -> Option<Self> {
        match word {
            "in_doubt" => Some(Self::InDoubt),
            "member_lost" => Some(Self::MemberLost),
            "lock_lost" => Some(Self::LockLost),
            _ => None,
        }
    }
}

/// The result of a task: what `register` stores and reporters show.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    pub changed: bool,
    pub failed: bool,
    pub skipped: bool,
    /// One line for a person; mandatory when failed.
    pub msg: String,
    /// Exit code, standard output and error, for modules that run a command.
    pub rc: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    /// Module-specific fields, named in the module's `RESULT`.
    pub data: ValueMap,
    pub diff: Vec<Diff>,
    /// In check mode: the module could not say what would happen.
    pub unknown: bool,
    /// Failed because a gate did not hold: nothing was done, and nothing is broken.
    #[serde(default)]
    pub refused: bool,
    #[serde(default, skip_serializing_if = "Ending::is_own")]
    pub ending: Ending,
}

impl Outcome {
    pub fn ok() -> Self {
        Self::default()
    }

    pub fn changed() -> Self {
        Self { changed: true, ..Self::default() }
    }

    pub fn failed(msg: impl Into<String>) -> Self {
        Self { failed: true, msg: msg.into(), ..Self::default() }
    }

    pub fn skipped(msg: impl Into<String>) -> Self {
        Self { skipped: true, msg: msg.into(), ..Self::default() }
    }

    /// Failed, for it took too long.
    pub fn timed_out(msg: impl Into<String>) -> Self {
        Self { ending: Ending::TimedOut, ..Self::failed(msg) }
    }

    pub fn with(mut self, key: &str, value: impl Into<Value>) -> Self {
        self.data.insert(key.to_owned(), value.into());
        self
    }

    /// Adds results that are not among it yet.
    pub fn tell(&mut self, told: &[(&'static str, String)]) {
        for (name, value) in told {
            self.data.entry((*name).to_owned()).or_insert_with(|| value.as_str().into());
        }
    }

    pub fn status(&self) -> Status {
        match self {
            Self { failed: true, .. } => Status::Failed,
            Self { skipped: true, .. } => Status::Skipped,
            Self { changed: true, .. } => Status::Changed,
            _ => Status::Ok,
        }
    }

    /// What templates see under the registered name.
    pub fn to_value(&self) -> Value {
        let mut map = ValueMap::new();
        map.insert("changed".into(), self.changed.into());
        map.insert("failed".into(), self.failed.into());
        map.insert("skipped".into(), self.skipped.into());
        map.insert("msg".into(), self.msg.clone().into());
        map.insert("rc".into(), self.rc.into());
        for (name, text) in [("stdout", &self.stdout), ("stderr", &self.stderr)] {
            map.insert(name.into(), text.clone().into());
            map.insert(format!("{name}_lines"), text.lines().collect::<Vec<_>>().into());
        }
        if self.ending == Ending::TimedOut {
            map.insert("timed_out".into(), true.into());
        }
        map.extend(self.data.clone());
        Value::Object(map)
    }
}
