//! Turns the two streams of a runner into what happened to its steps.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{
    Segment,
    gather::{Gathering, Words},
    scanner::{Piece, Scanner},
    script::Nonce,
};
use crate::model::{ByteSize, Outcome};

/// How far one stream may run ahead of the other. No honest host comes near it: what is on the way between two programs is far less.
const BACKLOG_LIMIT: usize = 64 << 20;
/// How much the results of all steps of one exec may have together.
const EXEC_LIMIT: usize = 512 << 20;

/// What a runner tells us, in order: a step has finished before the next one starts.
#[derive(Debug, PartialEq)]
pub(super) enum Event {
    /// The process that runs the segment, for when it must be ended.
    Started {
        step: usize,
        runner: u32,
    },
    Output {
        step: usize,
        error: bool,
        text: Bytes,
    },
    /// A piece of a file that the step sends.
    File {
        error: bool,
        bytes: Bytes,
    },
    Finished {
        step: usize,
        outcome: Box<Outcome>,
    },
    /// The runner has tidied up and ends.
    Done,
}

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("unexpected output from the shell on the host: {0}")]
pub(super) struct Nonsense(String);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Stdout,
    Stderr,
}

/// Where one stream stands.
struct Stream {
    scanner: Scanner,
    /// The step whose output this is.
    step: Option<usize>,
    /// Steps that have ended on this stream.
    ended: usize,
    /// A marker whose time has not come.
    held: Option<Bytes>,
}

impl Stream {
    fn new(nonce: &Nonce) -> Self {
        Self { scanner: Scanner::new(nonce), step: None, ended: 0, held: None }
    }

    fn next(&mut self) -> Option<Piece> {
        self.held.take().map(Piece::Marker).or_else(|| self.scanner.next())
    }
}

/// Reads both streams of one exec.
///
/// They travel apart and one may run ahead of the other, so a stream that has seen the end of a step
/// waits there for the other.
pub(super) struct Reader {
    captures: Vec<bool>,
    stdout: Stream,
    stderr: Stream,
    gathering: Gathering,
    exit_code: i32,
    finished: usize,
    /// How many bytes the outcomes of those have.
    kept: usize,
    events: VecDeque<Event>,
    /// What came before the first marker; all there is to say why no marker came.
    noise: Noise,
}

impl Reader {
    pub(super) fn new(segment: &Segment, nonce: &Nonce) -> Self {
        Self::with(segment.steps.iter().map(|step| step.payload.capture).collect(), nonce)
    }

    /// For one step of which only this is known any more.
    pub(super) fn for_one(capture: bool, nonce: &Nonce) -> Self {
        Self::with(vec![capture], nonce)
    }

    fn with(captures: Vec<bool>, nonce: &Nonce) -> Self {
        Self {
            captures,
            stdout: Stream::new(nonce),
            stderr: Stream::new(nonce),
            gathering: Gathering::default(),
            exit_code: 0,
            finished: 0,
            kept: 0,
            events: VecDeque::new(),
            noise: Noise::default(),
        }
    }

    pub(super) fn push(&mut self, source: Source, chunk: &[u8]) {
        self.stream(source).scanner.push(chunk);
    }

    pub(super) fn next(&mut self) -> Result<Option<Event>, Nonsense> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Ok(Some(event));
            }
            let moved = self.advance(Source::Stdout)? | self.advance(Source::Stderr)?;
            if !moved {
                return self.within_bounds().map(|()| None);
            }
        }
    }

    /// A host must not fill our memory with what has to wait.
    fn within_bounds(&self) -> Result<(), Nonsense> {
        let too_much = |what: &str, limit: usize| Err(Nonsense(format!("more than {} {what}", ByteSize(limit as u64))));
        match [&self.stdout, &self.stderr].iter().any(|stream| stream.scanner.waiting() > BACKLOG_LIMIT) {
            true => too_much("on one stream that had to wait for the other", BACKLOG_LIMIT),
            false if self.kept > EXEC_LIMIT => too_much("of results", EXEC_LIMIT),
            false => Ok(()),
        }
    }

    /// The step that runs, or would run next.
    pub(super) fn step(&self) -> usize {
        self.finished
    }

    /// Whether a step has begun and not ended.
    pub(super) fn in_step(&self) -> bool {
        self.stdout.step.is_some()
    }

    pub(super) fn has_started(&self) -> bool {
        self.stdout.step.is_some() || self.stdout.ended > 0
    }

    /// What is known of a step that never got to its end.
    pub(super) fn cut_short(self, exit_code: i32) -> Outcome {
        let capture = self.captures.get(self.finished).copied().unwrap_or_default();
        self.gathering.outcome(exit_code, capture)
    }

    /// What was said instead of a first marker.
    pub(super) fn noise(&mut self) -> String {
        let rest = self.stderr.scanner.finish();
        self.noise.add(Source::Stderr, &rest);
        let rest = self.stdout.scanner.finish();
        self.noise.add(Source::Stdout, &rest);
        self.noise.text()
    }

    fn stream(&mut self, source: Source) -> &mut Stream {
        match source {
            Source::Stdout => &mut self.stdout,
            Source::Stderr => &mut self.stderr,
        }
    }

    /// Handles one piece of a stream. False: there is none, or it has to wait.
    fn advance(&mut self, source: Source) -> Result<bool, Nonsense> {
        let finished = self.finished;
        // A step has started when stdout says so; until then its errors wait.
        let early = source == Source::Stderr
            && self.stderr.step.is_some()
            && self.stdout.step.is_none()
            && self.stdout.ended == finished;
        let stream = self.stream(source);
        if early || stream.ended > finished {
            return Ok(false);
        }
        match stream.next() {
            None => return Ok(false),
            Some(Piece::Text(text)) => self.text(source, text),
            // The steps before it are quiet here, and may not have ended on stdout.
            Some(Piece::Marker(line)) if source == Source::Stderr && begins_after(&line, finished) => {
                stream.held = Some(line);
                return Ok(false);
            }
            Some(Piece::Marker(line)) => self.marker(source, &line)?,
        }
        Ok(true)
    }

    fn text(&mut self, source: Source, text: Bytes) {
        let error = source == Source::Stderr;
        let Some(step) = self.stream(source).step else {
            if !self.has_started() {
                self.noise.add(source, &text);
            }
            return;
        };
        if let Some(error) = self.gathering.file().filter(|_| !error) {
            self.events.push_back(Event::File { error, bytes: text });
        } else if error || !self.gathering.in_text(&text) {
            self.gathering.output(error, &text);
            self.events.push_back(Event::Output { step, error, text });
        }
    }

    fn marker(&mut self, source: Source, line: &[u8]) -> Result<(), Nonsense> {
        let line = std::str::from_utf8(line).map_err(|_| Nonsense(String::from_utf8_lossy(line).into_owned()))?;
        let mut words = line.split(' ');
        match (words.next().unwrap_or_default(), source) {
            ("begin", _) => self.begin(source, words).ok_or_else(|| Nonsense(line.to_owned())),
            ("end", _) => self.end(source, words).ok_or_else(|| Nonsense(line.to_owned())),
            ("done", Source::Stdout) => {
                self.events.push_back(Event::Done);
                Ok(())
            }
            (word, Source::Stdout) if self.stdout.step.is_some() => {
                self.gathering.marker(word, words).ok_or_else(|| Nonsense(line.to_owned()))
            }
            // Something that an earlier step left behind still reports.
            (_, Source::Stdout) => Ok(()),
            _ => Err(Nonsense(line.to_owned())),
        }
    }

    fn begin(&mut self, source: Source, mut words: Words<'_>) -> Option<()> {
        let step = words.next()?.parse().ok().filter(|step| *step == self.finished && *step < self.captures.len())?;
        if source == Source::Stdout {
            let runner = words.next()?.parse().ok()?;
            self.events.push_back(Event::Started { step, runner });
        }
        self.stream(source).step = Some(step);
        Some(())
    }

    fn end(&mut self, source: Source, mut words: Words<'_>) -> Option<()> {
        let step = words.next()?.parse().ok()?;
        if source == Source::Stdout {
            self.exit_code = words.next()?.parse().ok()?;
            // It has nothing on standard error, no markers either.
            self.stderr.ended += usize::from(words.next() == Some("quiet"));
        }
        let stream = self.stream(source);
        stream.step.take().filter(|current| *current == step)?;
        stream.ended += 1;
        if self.stdout.ended == self.stderr.ended {
            let capture = self.captures[step];
            self.kept += self.gathering.size();
            let outcome = std::mem::take(&mut self.gathering).outcome(self.exit_code, capture);
            self.events.push_back(Event::Finished { step, outcome: Box::new(outcome) });
            self.finished += 1;
        }
        Some(())
    }
}

/// Whether the marker is the begin of a step behind that one.
fn begins_after(line: &[u8], step: usize) -> bool {
    let number = std::str::from_utf8(line).ok().and_then(|line| line.strip_prefix("begin "));
    number.and_then(|number| number.parse::<usize>().ok()).is_some_and(|number| number > step)
}

/// The first words of each stream before any marker.
#[derive(Default)]
struct Noise {
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Noise {
    const LIMIT: usize = 4096;

    fn add(&mut self, source: Source, text: &[u8]) {
        let kept = match source {
            Source::Stdout => &mut self.stdout,
            Source::Stderr => &mut self.stderr,
        };
        let room = Self::LIMIT.saturating_sub(kept.len());
        kept.extend_from_slice(&text[..text.len().min(room)]);
    }

    fn text(&self) -> String {
        let said = [&self.stderr, &self.stdout].map(|bytes| String::from_utf8_lossy(bytes).trim().to_owned());
        said.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests;
