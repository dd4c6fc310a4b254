//! What is sent to a target: shell bodies with their arguments.

use std::{sync::Arc, time::Duration};

use super::{Entry, MemberWatch, RemoteError, script};
use crate::model::Masker;

/// How a payload can be run where nothing else is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Runs {
    /// Its body in a copy of the runner.
    #[default]
    Body,
    /// Its body in the runner itself: it is over at once, and sets no trap. Alone in a script all that it reports goes out together.
    Brief,
    /// Its body does nothing but run the program `args`, which no shell takes for something of its own, so the runner starts that.
    Program,
}

/// A module's shell body and the values it works on.
///
/// The body sees each value as a variable `arg_NAME`, and `args` as `"$@"`. It runs in a subshell
/// behind the prelude, whose functions report changes, results and failures.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pub body: &'static str,
    pub values: Vec<(&'static str, Vec<u8>)>,
    pub args: Vec<Vec<u8>>,
    /// The body's own output is the result (`command`), rather than a message for failures only.
    pub capture: bool,
    /// Values that the body gives to no program as an argument, so that they may be secret.
    pub hidden: Vec<&'static str>,
    /// The body is secret as a whole: it is not even compared with what was there.
    pub no_diff: bool,
    pub runs: Runs,
    /// The file that the body looks at before all else, as SIZE:PATH: with others in a row it is looked at together.
    pub glance: Option<String>,
    /// What the shell that stays does ahead of the body, which runs in a subshell: what it sees serves the steps behind it, too.
    pub ahead: Option<String>,
    /// The body calls what the ledger has.
    pub uses_ledger: bool,
    /// Members of clusters that must be the same afterwards.
    pub watch: Option<Arc<MemberWatch>>,
    /// Results that are known without the host.
    pub told: Vec<(&'static str, String)>,
}

impl Payload {
    pub fn new(body: &'static str) -> Self {
        Self { body, ..Self::default() }
    }

    /// A value the body reads as `$arg_NAME`. Anything but NUL bytes.
    pub fn value(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.values.push((name, value.as_ref().to_vec()));
        self
    }

    /// As `value`, for what may be secret: the body must keep it off command lines and environments.
    pub fn hidden(mut self, name: &'static str, value: impl AsRef<[u8]>) -> Self {
        self.hidden.push(name);
        self.value(name, value)
    }

    /// A result of the step that need not come from the host.
    pub fn tell(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.told.push((name, value.into()));
        self
    }

    /// The first value that holds a secret and could show in the target's list of processes.
    pub fn exposed(&self, masker: &Masker) -> Option<&'static str> {
        let values = self.values.iter().filter(|(name, _)| !self.hidden.contains(name));
        let exposed = values.into_iter().find(|(_, value)| masker.is_in(value)).map(|(name, _)| *name);
        exposed.or_else(|| self.args.iter().any(|arg| masker.is_in(arg)).then_some("argv"))
    }

    /// An optional value; absent is the empty string.
    pub fn maybe(self, name: &'static str, value: Option<impl AsRef<[u8]>>) -> Self {
        match value {
            Some(value) => self.value(name, value),
            None => self.value(name, ""),
        }
    }

    /// `1` or empty, so that `[ "$arg_NAME" ]` asks for it.
    pub fn flag(self, name: &'static str, value: bool) -> Self {
        self.value(name, if value { "1" } else { "" })
    }

    pub fn arg(mut self, value: impl AsRef<[u8]>) -> Self {
        self.args.push(value.as_ref().to_vec());
        self
    }

    pub fn brief(mut self) -> Self {
        self.runs = Runs::Brief;
        self
    }

    /// The body is about this file, which should have this size. Where its name could be taken for something else, it looks by itself.
    pub fn glance(mut self, path: &str, size: u64) -> Self {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-+@".contains(&byte);
        let is_file = path.starts_with('/') && !path.ends_with('/') && path.bytes().all(is_plain);
        self.glance = is_file.then(|| format!("{size}:{path}"));
        self
    }

    pub(super) fn ahead(mut self, line: String) -> Self {
        self.ahead = Some(line);
        self.with_ledger()
    }

    pub(super) fn with_ledger(mut self) -> Self {
        self.uses_ledger = true;
        self
    }

    pub fn program(mut self) -> Self {
        self.runs = Runs::Program;
        self
    }

    pub fn capture(mut self) -> Self {
        self.capture = true;
        self
    }
}

/// What becomes of the steps behind one that failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnFailure {
    /// None of them runs.
    #[default]
    Stop,
    /// They run up to the next step that stops, and that one stops also for this failure: items of a loop.
    StopLater,
    /// They run: the failure is ignored.
    GoOn,
}

/// One payload with the surroundings of its task.
#[derive(Clone, Debug)]
pub struct Step {
    pub payload: Payload,
    pub environment: Arc<Vec<(String, String)>>,
    pub check_mode: bool,
    pub diff: bool,
    pub timeout: Option<Duration>,
    pub on_failure: OnFailure,
    /// For steps that must not run twice.
    pub entry: Option<Entry>,
    /// Runs only while the locks on this target are held.
    pub fenced: bool,
}

impl Step {
    /// A step without surroundings.
    pub fn plain(payload: Payload) -> Self {
        Self {
            payload,
            environment: Arc::default(),
            check_mode: false,
            diff: false,
            timeout: None,
            on_failure: OnFailure::Stop,
            entry: None,
            fenced: false,
        }
    }

    /// Whether the step can be sent at all; a segment is sent as a whole, or not.
    pub fn check(&self) -> Result<(), RemoteError> {
        Ok(script::check(self)?)
    }

    /// How much the step's own values weigh in a script; bodies are shared.
    pub fn weight(&self) -> usize {
        let environment = self.environment.iter().map(|(_, value)| value.len());
        let values = self.payload.values.iter().map(|(_, value)| value.len());
        environment.chain(values).chain(self.payload.args.iter().map(Vec::len)).sum()
    }
}

/// Payloads that go out as one exec, in order; nothing after a failed one runs, unless its step says so.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    pub steps: Vec<Step>,
}
