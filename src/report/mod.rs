//! Report: consumes events and prints. Nothing else in the crate writes to the terminal, but `cli`.
//!
//! ```text
//!                       ┌▶ json      one event a line
//! events ─▶ add hints ──┼▶ plain     clean lines
//!                       ├▶ progress  a line per busy host, a bar for the run
//!                       ├▶ plan      every task with what would change
//!                       └▶ adhoc     what `exec` shows
//! ```
//!
//! Reporters run on a thread of their own, so that a slow terminal never slows a run down. A pipe
//! that was closed silences them and nothing else: hosts are not left half-way because of `| head`.

mod adhoc;
mod diagnostics;
mod diff;
mod hint;
mod json;
mod kept;
mod lines;
mod live;
mod look;
mod output;
mod plain;
mod plan;
mod progress;
mod recap;
mod rollouts;
mod text;
mod transfer;

use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

pub use adhoc::AdhocReporter;
pub use diagnostics::{diagnostics_as_json, render_diagnostics};
pub use diff::unified;
pub use hint::hint_for;
pub use indicatif::MultiProgress;
pub use json::JsonReporter;
pub use kept::Kept;
pub use look::{ColorChoice, Look, Tone};
pub use output::Output;
pub use plain::PlainReporter;
pub use plan::PlanReporter;
pub use progress::ProgressReporter;
pub use text::{sanitize, sanitize_json, sanitize_painted};
pub use transfer::TransferBar;

use crate::model::{Event, EventKind};

/// How often a reporter that moves by itself is drawn anew.
const FRAME: Duration = Duration::from_millis(100);

/// What a person asked to see.
#[derive(Clone, Copy, Debug, Default)]
pub struct Detail {
    /// How often `-v` was given.
    pub verbosity: u8,
    pub diff: bool,
}

/// Turns events into output.
pub trait Reporter: Send {
    fn event(&mut self, event: &Event) -> io::Result<()>;

    /// Called about ten times a second, for what moves without an event.
    fn frame(&mut self) -> io::Result<()> {
        Ok(())
    }

    /// Called once, after the last event.
    fn finish(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reports until the run has finished or its sender is gone. Join the handle before leaving.
pub fn spawn(events: Receiver<Event>, mut reporter: Box<dyn Reporter>) -> JoinHandle<()> {
    thread::spawn(move || {
        // An error means that nobody reads any more. The run goes on, and its events go nowhere.
        let _ = drive(&events, reporter.as_mut()).and_then(|()| reporter.finish());
    })
}

fn drive(events: &Receiver<Event>, reporter: &mut dyn Reporter) -> io::Result<()> {
    let mut next_frame = Instant::now() + FRAME;
    loop {
        match events.recv_timeout(next_frame.saturating_duration_since(Instant::now())) {
            Ok(event) => {
                let is_last = matches!(event.kind, EventKind::RunFinished { .. });
                reporter.event(&with_hint(event))?;
                if is_last {
                    return Ok(());
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(()),
        }
        if Instant::now() >= next_frame {
            reporter.frame()?;
            next_frame = Instant::now() + FRAME;
        }
    }
}

/// Adds what a person could do about a failure, unless the engine knew better.
fn with_hint(mut event: Event) -> Event {
    if let EventKind::NodeFinished { node, status, result, hint, .. } = &mut event.kind
        && hint.is_none()
    {
        *hint = hint_for(node, *status, result);
    }
    event
}

#[cfg(test)]
mod script;
#[cfg(test)]
mod tests;
