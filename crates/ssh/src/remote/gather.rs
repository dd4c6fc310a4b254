//! Collects what one step reports, and makes its outcome of it.

use crate::model::{Diff, Ending, Outcome, Value, ValueMap};

/// How much of a step's output, or of one result, is kept.
const OUTPUT_LIMIT: usize = 8 << 20;
/// How much the results and diffs of a step may take together, beside its output.
const RESULTS_LIMIT: usize = 64 << 20;
/// What a result takes beside its bytes, and a diff.
const RESULT_COST: usize = 128;
const DIFF_COST: usize = 4 << 10;
/// How much larger than its text a value may be that was written as JSON.
const JSON_COST: usize = 32;
/// What an honest line is shorter than.
const LINE_LIMIT: usize = 64 << 10;
/// How much text one side of a diff shows.
const DIFF_LIMIT: usize = 256 << 10;

pub(super) type Words<'a> = std::str::Split<'a, char>;

/// What a text behind a marker is for.
#[derive(Debug)]
enum Purpose {
    Set(String),
    Int(String),
    Bool(String),
    Json(String),
    Message,
    Failure,
    Unknown,
    Label,
    Before,
    After,
    File { error: bool },
}

/// One step while it runs.
#[derive(Default)]
pub(super) struct Gathering {
    stdout: Kept,
    stderr: Kept,
    text: Option<(Purpose, Kept)>,
    label: String,
    changed: bool,
    unknown: bool,
    ending: Ending,
    failure: Option<String>,
    msg: String,
    data: ValueMap,
    diff: Vec<Diff>,
    /// What results and diffs have taken of their limit.
    taken: usize,
}

impl Gathering {
    /// About how much memory it holds.
    pub(super) fn size(&self) -> usize {
        self.taken + self.stdout.bytes.len() + self.stderr.bytes.len()
    }

    /// Whether a file is being sent that is too large to keep here: its errors, or its contents.
    pub(super) fn file(&self) -> Option<bool> {
        match self.text {
            Some((Purpose::File { error }, _)) => Some(error),
            _ => None,
        }
    }

    /// Takes bytes that belong to a marker. False: they are the step's own output.
    pub(super) fn in_text(&mut self, bytes: &[u8]) -> bool {
        match &mut self.text {
            Some((_, kept)) => {
                kept.add(bytes);
                true
            }
            None => false,
        }
    }

    pub(super) fn output(&mut self, error: bool, bytes: &[u8]) {
        match error {
            true => self.stderr.add(bytes),
            false => self.stdout.add(bytes),
        }
    }

    /// A marker inside the step. `None` if it makes no sense here.
    pub(super) fn marker(&mut self, word: &str, mut words: Words<'_>) -> Option<()> {
        let mut name = || words.next().filter(|name| !name.is_empty()).map(str::to_owned);
        let purpose = match word {
            "changed" => {
                self.changed = true;
                return Some(());
            }
            "ending" => {
                self.ends(Ending::parse(words.next()?)?);
                return Some(());
            }
            "endtext" => {
                let (purpose, kept) = self.text.take()?;
                self.take(purpose, kept);
                return Some(());
            }
            "set" => Purpose::Set(name()?),
            "int" => Purpose::Int(name()?),
            "bool" => Purpose::Bool(name()?),
            "json" => Purpose::Json(name()?),
            "msg" => Purpose::Message,
            "fail" => Purpose::Failure,
            "unknown" => Purpose::Unknown,
            "label" => Purpose::Label,
            "before" => Purpose::Before,
            "after" => Purpose::After,
            "file" => Purpose::File { error: false },
            "errors" => Purpose::File { error: true },
            _ => return None,
        };
        self.text = Some((purpose, Kept::default()));
        Some(())
    }

    /// In doubt stays in doubt, whatever comes behind it.
    fn ends(&mut self, ending: Ending) {
        if self.ending != Ending::InDoubt {
            self.ending = ending;
        }
    }

    fn take(&mut self, purpose: Purpose, kept: Kept) {
        // A job or a ledger may be older than this program, and endings were results then.
        if let Purpose::Bool(name) = &purpose
            && let Some(ending) = Ending::parse(name)
        {
            return self.ends(ending);
        }
        let taken = self.taken.saturating_add(cost(&purpose, &kept));
        if taken > RESULTS_LIMIT {
            let limit = RESULTS_LIMIT >> 20;
            self.failure =
                Some(format!("the host sent more than {limit} MiB of results for one task; the rest was dropped"));
            return;
        }
        self.taken = taken;
        match purpose {
            Purpose::Set(name) => {
                self.data.insert(name, kept.into_text().into());
            }
            Purpose::Int(name) => self.typed(name, kept, "a whole number", |text| text.parse::<i64>().ok()),
            Purpose::Bool(name) => self.typed(name, kept, "a boolean", as_bool),
            Purpose::Json(name) => self.typed(name, kept, "JSON", |text| serde_json::from_str::<Value>(text).ok()),
            Purpose::Message => self.msg = kept.into_text(),
            Purpose::Failure => self.failure = Some(kept.into_text()),
            Purpose::Unknown => {
                self.unknown = true;
                self.msg = kept.into_text();
            }
            Purpose::Label => self.label = kept.into_label(),
            Purpose::Before => self.side().before = kept.into_diff_text(),
            Purpose::After => self.side().after = kept.into_diff_text(),
            Purpose::File { .. } => {}
        }
    }

    fn typed<T: Into<Value>>(&mut self, name: String, kept: Kept, what: &str, parse: impl Fn(&str) -> Option<T>) {
        let text = kept.into_text();
        match parse(text.trim()) {
            Some(value) => {
                self.data.insert(name, value.into());
            }
            None => self.failure = Some(format!("the module's result `{name}` is not {what}: {text:?}")),
        }
    }

    /// The diff with the label of the text at hand.
    fn side(&mut self) -> &mut Diff {
        let position = self.diff.iter().position(|diff| diff.label == self.label).unwrap_or_else(|| {
            self.diff.push(Diff { label: self.label.clone(), before: String::new(), after: String::new() });
            self.diff.len() - 1
        });
        &mut self.diff[position]
    }

    pub(super) fn outcome(self, exit_code: i32, capture: bool) -> Outcome {
        let failed = exit_code != 0 || self.failure.is_some();
        let keep = capture || failed;
        let [stdout, stderr] = [self.stdout, self.stderr].map(|kept| match keep {
            true => kept.into_output(),
            false => String::new(),
        });
        let msg = match self.failure {
            Some(message) => message,
            None if failed && capture => format!("exit code {exit_code}"),
            None if failed => last_line(&stderr).unwrap_or_else(|| format!("exit code {exit_code}")),
            None => self.msg,
        };
        Outcome {
            changed: self.changed,
            failed,
            skipped: false,
            msg,
            rc: keep.then_some(exit_code),
            stdout,
            stderr,
            data: self.data,
            diff: self.diff,
            unknown: self.unknown,
            refused: false,
            ending: self.ending,
        }
    }
}

/// What is left of it, in bytes. A text that takes the place of another one costs nothing more.
fn cost(purpose: &Purpose, kept: &Kept) -> usize {
    let bytes = kept.bytes.len();
    match purpose {
        Purpose::Set(name) | Purpose::Int(name) | Purpose::Bool(name) => RESULT_COST + name.len() + bytes,
        Purpose::Json(name) => RESULT_COST + name.len() + bytes * JSON_COST,
        Purpose::Before | Purpose::After => DIFF_COST + bytes.min(DIFF_LIMIT),
        Purpose::Message | Purpose::Failure | Purpose::Unknown | Purpose::Label | Purpose::File { .. } => 0,
    }
}

fn as_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "true" => Some(true),
        "0" | "" | "false" => Some(false),
        _ => None,
    }
}

fn last_line(text: &str) -> Option<String> {
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// Bytes up to a limit, and how many there were beyond it.
#[derive(Debug, Default)]
struct Kept {
    bytes: Vec<u8>,
    dropped: u64,
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        let room = OUTPUT_LIMIT - self.bytes.len();
        let kept = bytes.len().min(room);
        self.bytes.extend_from_slice(&bytes[..kept]);
        self.dropped += (bytes.len() - kept) as u64;
    }

    fn into_text(mut self) -> String {
        if self.dropped > 0 {
            // Half a line could be half a secret, which nobody would recognise. A line without end stays.
            let near = self.bytes.len().saturating_sub(LINE_LIMIT);
            let line_end = self.bytes[near..].iter().rposition(|&byte| byte == b'\n').map(|end| near + end);
            let whole = line_end.unwrap_or(self.bytes.len());
            self.dropped += (self.bytes.len() - whole) as u64;
            self.bytes.truncate(whole);
        }
        let mut text = String::from_utf8(self.bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        if self.dropped > 0 {
            text.push_str(&format!("\n[{} more bytes were dropped]", self.dropped));
        }
        text
    }

    /// Without the newlines at the end, as templates compare it.
    fn into_output(self) -> String {
        let mut text = self.into_text();
        text.truncate(text.trim_end_matches(['\n', '\r']).len());
        text
    }

    /// It is kept with each side of a diff.
    fn into_label(mut self) -> String {
        self.bytes.truncate(DIFF_COST);
        self.dropped = 0;
        self.into_text()
    }

    fn into_diff_text(self) -> String {
        if self.bytes.len() > DIFF_LIMIT {
            return format!("[more than {} KiB, not shown]\n", DIFF_LIMIT >> 10);
        }
        match String::from_utf8(self.bytes) {
            Ok(text) if !text.contains('\0') => text,
            _ => "[binary, not shown]\n".to_owned(),
        }
    }
}
