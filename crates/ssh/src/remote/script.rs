//! What is sent: one constant command line, and on stdin the script it evaluates.

use std::{fmt, sync::LazyLock};

use zeroize::Zeroizing;

use super::{Fence, RemoteError, Segment, Step, ledger::LEDGER, lock::fence_script, steps, watch::WATCH};
use etcdrun_base::mutant::{is_off, policy};

use crate::{
    digest::{hex, sha256},
    shell::quote,
};

static PRELUDE: LazyLock<String> =
    LazyLock::new(|| compact(concat!(include_str!("prelude.sh"), include_str!("own.sh"))));
static GLANCE: LazyLock<String> = LazyLock::new(|| compact(include_str!("glance.sh")));
static CHECK: LazyLock<String> = LazyLock::new(|| compact(include_str!("check.sh")));

/// What scripts call, and a shell that stays need be sent only once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Library {
    prelude: bool,
    glance: bool,
    check: bool,
    ledger: bool,
    watch: bool,
}

impl Library {
    fn needed_by(segment: &Segment) -> Self {
        Self {
            prelude: true,
            glance: segment.steps.windows(2).any(|steps| steps.iter().all(|step| step.payload.glance.is_some())),
            check: segment.steps.iter().any(|step| step.check_mode),
            ledger: segment.steps.iter().any(|step| step.entry.is_some() || step.payload.uses_ledger),
            watch: segment.steps.iter().any(|step| step.payload.watch.is_some()),
        }
    }

    fn without(self, known: Self) -> Self {
        Self {
            prelude: self.prelude && !known.prelude,
            glance: self.glance && !known.glance,
            check: self.check && !known.check,
            ledger: self.ledger && !known.ledger,
            watch: self.watch && !known.watch,
        }
    }

    pub(super) fn and(self, more: Self) -> Self {
        Self {
            prelude: self.prelude || more.prelude,
            glance: self.glance || more.glance,
            check: self.check || more.check,
            ledger: self.ledger || more.ledger,
            watch: self.watch || more.watch,
        }
    }

    fn parts(self) -> impl Iterator<Item = &'static str> {
        let parts = [
            (self.prelude, &PRELUDE),
            (self.glance, &GLANCE),
            (self.check, &CHECK),
            (self.ledger, &LEDGER),
            (self.watch, &WATCH),
        ];
        parts.into_iter().filter(|(is_in, _)| *is_in).map(|(_, part)| part.as_str())
    }
}

/// How a shell on a host reads what we send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reads {
    /// As it likes, since nothing but scripts will come. Most shells read in blocks then, without a process for it.
    Scripts,
    /// Not a byte beyond a script: something else stands before or behind it.
    Exactly,
}

/// Stands on the command line of a shell that reads exactly, so that nothing else has to.
///
/// It skips stdin up to the magic line (a password that sudo did not ask for would stand there), then
/// evaluates the line behind it, which reads the script; and so on, until stdin ends. It is one line
/// without backslashes, single quotes or exclamation marks, so that any login shell hands it on unharmed.
const BOOTSTRAP: &str = concat!(
    r##"while read -r _line; do case $_line in "#etcdrun") "##,
    r#"read -r _line; eval "$_line";; esac; done; exit 98"#
);

/// The exit code of a bootstrap whose input has ended. If it has run nothing, it never saw its magic line.
pub(super) const NO_SCRIPT: u32 = 98;

/// Programs answer the same everywhere.
const SETTINGS: &str = "LC_ALL=C; export LC_ALL";

/// Names the file that lets a runner start no further step.
pub(super) const HALT: &str = "halt";

/// Stands where the length of a script goes, once it is known.
const ROOM_FOR_LENGTH: &str = "NNNNNNNNNNNNNNNNNNNN";

/// What no output of a command contains by accident.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Nonce(String);

impl Nonce {
    pub(super) fn random() -> Self {
        Self(format!("ETCDRUN-{:032x}", rand::random::<u128>()))
    }

    /// A nonce that a host has kept for us.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("ETCDRUN-")?;
        let valid = digits.len() == 32 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        valid.then(|| Self(text.to_owned()))
    }

    /// A name for something on the host, as hard to guess. Other users may see it there: it tells neither the nonce nor another name.
    pub(super) fn name(&self, what: &str) -> String {
        hex(&sha256(format!("{self} {what}"))[..16])
    }

    /// What a script begins with: the nonce, and the names that it has for files.
    fn variables(&self) -> String {
        format!("_nonce={self}; _scratch={}; _halt={}", self.name("scratch"), self.name(HALT))
    }

    #[cfg(test)]
    pub(super) fn fixed() -> Self {
        Self(format!("ETCDRUN-{:032x}", 0xfeed_u128))
    }
}

impl fmt::Display for Nonce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// As whom the bootstrap runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Become<'a> {
    Nobody,
    /// By sudo, which must not ask for a password.
    Silently(&'a str),
    /// By sudo, which reads the password from the first line of stdin.
    WithPassword(&'a str),
}

/// The command line of an exec. Only the name of a user ever varies in it.
///
/// `-k` makes sudo look away from credentials it may have cached, so that it asks always or never.
pub(super) fn command_line(as_whom: Become<'_>, reads: Reads) -> String {
    let shell = match reads {
        Reads::Scripts if !matches!(as_whom, Become::WithPassword(_)) => "sh -s".to_owned(),
        _ => format!("sh -c '{BOOTSTRAP}'"),
    };
    match as_whom {
        Become::Nobody => format!("exec {shell}"),
        Become::Silently(user) => format!("exec sudo -k -n -H -u {} {shell}", quoted(user)),
        Become::WithPassword(user) => format!("exec sudo -k -S -p \"\" -H -u {} {shell}", quoted(user)),
    }
}

/// The arguments of a shell right here.
pub(super) fn local_arguments(reads: Reads) -> &'static [&'static str] {
    match reads {
        Reads::Scripts => &["-s"],
        Reads::Exactly => &["-c", BOOTSTRAP],
    }
}

pub(super) fn quoted(text: &str) -> String {
    String::from_utf8_lossy(&quote(text.as_bytes())).into_owned()
}

/// Why a segment cannot be sent.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum ScriptError {
    #[error("`{0}` contains a NUL byte, which a shell cannot hold")]
    Nul(String),
    #[error("`{0}` is not a name for an environment variable")]
    Name(String),
}

impl From<ScriptError> for RemoteError {
    fn from(error: ScriptError) -> Self {
        Self::Protocol(error.to_string().into())
    }
}

/// A script together with how stdin goes on behind it.
pub(super) struct Script {
    /// Holds what the payloads hold, secrets too.
    pub(super) bytes: Zeroizing<Vec<u8>>,
    /// What it calls, so that a shell which has run it knows it.
    pub(super) library: Library,
}

impl Script {
    /// For steps that read nothing. They run in a subshell, and the shell goes on behind them; unless that was
    /// ended, for then the operator is to know. What the shell has in its library already is left out.
    ///
    /// Shells like dash read their input in blocks, so that they have the script by themselves. Others read byte by
    /// byte what they read by themselves, bash above all, and are quicker with a process that does it for them.
    pub(super) fn of(segment: &Segment, nonce: &Nonce, fences: &[Fence], has: Library) -> Self {
        let read = format!("case $- in s) ;; *) eval \"$(head -c {ROOM_FOR_LENGTH})\";; esac");
        let frame = format!("{}; {read}\n", first_line(nonce));
        let library = Library::needed_by(segment);
        let head = format!("{}(\nexec </dev/null\n", ahead(segment));
        let tail = ")\n_line=$?\n[ $_line = 0 ] || exit $_line\n";
        let mut bytes = Around { frame: &frame, library: library.without(has), head: &head, tail }.put(segment, fences);
        let length = bytes.len() - frame.len();
        if let Some(at) = frame.find(ROOM_FOR_LENGTH) {
            let length = format!("{length:<width$}", width = ROOM_FOR_LENGTH.len());
            bytes[at..at + length.len()].copy_from_slice(length.as_bytes());
        }
        Self { bytes, library }
    }

    /// For a step that reads a stream: data follows the script on stdin.
    pub(super) fn before_data(segment: &Segment, nonce: &Nonce, fences: &[Fence]) -> Self {
        let library = Library::needed_by(segment);
        let body = Around { frame: "", library, head: "", tail: "" }.put(segment, fences);
        // A byte at a time, because whatever dd read beyond the script would be lost to the step.
        let frame = format!("{}; eval \"$(dd bs=1 count={} 2>/dev/null)\"; exit\n", first_line(nonce), body.len());
        let mut bytes = Zeroizing::new(Vec::with_capacity(frame.len() + body.len()));
        bytes.extend_from_slice(frame.as_bytes());
        bytes.extend_from_slice(&body);
        Self { bytes, library }
    }

    /// For a shell that reads it from a file, long after we are gone.
    pub(super) fn alone(segment: &Segment, nonce: &Nonce) -> Result<Self, ScriptError> {
        segment.steps.iter().try_for_each(check)?;
        let library = Library::needed_by(segment);
        let head = format!("{SETTINGS}\n{}\nexec </dev/null\nrm -f -- \"$0\"\n", nonce.variables());
        Ok(Self { bytes: Around { frame: "", library, head: &head, tail: "" }.put(segment, &[]), library })
    }
}

/// What the shell that stays does in front of the subshell. A run is one process, so all entries are of the same one.
fn ahead(segment: &Segment) -> String {
    let run = segment.steps.iter().find_map(|step| Some(&step.entry.as_ref()?.run));
    let known = run.map(|run| format!("_know {}", quoted(run)));
    let lines = segment.steps.iter().filter_map(|step| step.payload.ahead.clone()).chain(known);
    lines.map(|line| line + "\n").collect()
}

/// The magic line, which is a comment to a shell that reads as it likes, and the begin of the line behind it.
fn first_line(nonce: &Nonce) -> String {
    format!("#etcdrun\n{SETTINGS}; {}", nonce.variables())
}

/// What a segment is put into.
struct Around<'a> {
    frame: &'a str,
    library: Library,
    head: &'a str,
    tail: &'a str,
}

impl Around<'_> {
    /// The frame, and behind it all else in braces: a script that a lost connection cuts short does not parse.
    fn put(&self, segment: &Segment, fences: &[Fence]) -> Zeroizing<Vec<u8>> {
        // Room for all of it at once: a vector that grows leaves copies of secrets behind.
        let is_fenced = !fences.is_empty() && segment.steps.iter().any(|step| step.fenced) && !is_off(policy::FENCE);
        let fence = if is_fenced { fence_script(fences) } else { String::new() };
        let library: usize = self.library.parts().map(str::len).sum();
        let around = self.frame.len() + library + self.head.len() + fence.len() + self.tail.len();
        let mut script = Zeroizing::new(Vec::with_capacity(around + steps::size_at_most(segment) + 16));
        script.extend_from_slice(self.frame.as_bytes());
        script.extend_from_slice(b"{\n");
        self.library.parts().for_each(|part| script.extend_from_slice(part.as_bytes()));
        script.extend_from_slice(self.head.as_bytes());
        script.extend_from_slice(b"_start\n");
        script.extend_from_slice(fence.as_bytes());
        steps::add(&mut script, segment, is_fenced);
        script.extend_from_slice(self.tail.as_bytes());
        script.extend_from_slice(b"}\n");
        script
    }
}

/// Whether a shell can hold what the step brings.
pub(super) fn check(step: &Step) -> Result<(), ScriptError> {
    let has_nul = |value: &[u8]| value.contains(&0);
    for (name, value) in step.environment.iter() {
        is_identifier(name).then_some(()).ok_or_else(|| ScriptError::Name(name.clone()))?;
        (!has_nul(value.as_bytes())).then_some(()).ok_or_else(|| ScriptError::Nul(name.clone()))?;
    }
    if let Some((name, _)) = step.payload.values.iter().find(|(_, value)| has_nul(value)) {
        return Err(ScriptError::Nul((*name).to_owned()));
    }
    match step.payload.args.iter().position(|arg| has_nul(arg)) {
        Some(position) => Err(ScriptError::Nul(format!("argument {}", position + 1))),
        None => Ok(()),
    }
}

/// A script of ours without comments and indentation: a third of it, which each host would read byte by byte.
pub(super) fn compact(script: &str) -> String {
    let is_code = |line: &&str| !line.is_empty() && !line.starts_with('#');
    let lines = script.lines().map(|line| line.trim_start_matches('\t')).filter(is_code);
    lines.fold(String::with_capacity(script.len()), |text, line| text + line + "\n")
}

fn is_identifier(name: &str) -> bool {
    let mut characters = name.chars();
    let first = characters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    first && characters.all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::remote::{Entry, Payload};

    #[test]
    fn a_body_is_sent_once_however_many_steps_use_it() {
        let step = |body, number: usize| Step::plain(Payload::new(body).value("number", number.to_string()));
        let steps =
            (0..10).map(|number| step(if number % 2 == 0 { "echo even" } else { "echo odd" }, number)).collect();
        let script = Script::of(&Segment { steps }, &Nonce::fixed(), &[], Library::default());
        let text = String::from_utf8(script.bytes.to_vec()).unwrap();
        for body in ["echo even", "echo odd"] {
            assert_eq!(text.matches(body).count(), 1, "{body}");
        }
        assert_eq!(text.matches("\n_body1\n").count(), 5);
    }

    #[test]
    fn a_shell_is_sent_only_what_it_does_not_know() {
        let segment = Segment { steps: vec![Step::plain(Payload::new("true"))] };
        let first = Script::of(&segment, &Nonce::fixed(), &[], Library::default());
        let next = Script::of(&segment, &Nonce::fixed(), &[], first.library);
        assert_eq!(first.bytes.len() - next.bytes.len(), PRELUDE.len());
        let entry = Entry { run: "run".into(), name: "node".into(), since: None, live: false };
        let command = Segment { steps: vec![Step { entry: Some(entry), ..Step::plain(Payload::new("true")) }] };
        let text = String::from_utf8(Script::of(&command, &Nonce::fixed(), &[], first.library).bytes.to_vec()).unwrap();
        assert!(text.contains(LEDGER.as_str()) && !text.contains(PRELUDE.as_str()), "{text}");
    }
}
