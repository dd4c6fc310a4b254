//! What a person at a terminal sees: a line for each busy host, a bar for the run, then the recap.
//!
//! Events only change the state here; bars follow it about ten times a second, so that ten thousand
//! short tasks do not cost ten thousand redraws.

use std::{
    fmt, io,
    sync::Arc,
    time::{Duration, Instant},
};

use console::{Term, truncate_str};
use indexmap::IndexMap;
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

use super::{
    Detail, Look, Output, Reporter, Tone,
    lines::{Lines, Share, title},
    text::duration,
};
use crate::model::{Event, EventKind, HostName, NodeInfo};

/// Rows of the terminal that are left to what was there before.
const SPARE_ROWS: usize = 6;

#[derive(Debug)]
struct Busy {
    node: Arc<NodeInfo>,
    since: Instant,
    /// How many nodes run there; the line shows the latest.
    running: usize,
    note: String,
}

#[derive(Debug)]
pub struct ProgressReporter {
    lines: Lines,
    look: Look,
    out: Output,
    screen: MultiProgress,
    busy: IndexMap<HostName, Busy>,
    rows: Vec<ProgressBar>,
    total: Option<ProgressBar>,
}

impl ProgressReporter {
    /// `screen` is shared with whatever else writes to the terminal during a run, such as a question
    /// for a passphrase.
    pub fn new(look: Look, detail: Detail, out: Output, screen: MultiProgress) -> Self {
        Self {
            lines: Lines::new(look, detail, Share::Trouble),
            look,
            out,
            screen,
            busy: IndexMap::new(),
            rows: Vec::new(),
            total: None,
        }
    }

    fn note(&mut self, kind: &EventKind) {
        match kind {
            EventKind::RunStarted { nodes, .. } => self.begin(*nodes),
            EventKind::NodeStarted { node } => self.start(node),
            EventKind::NodeProgress { node, done, total } if *total > 0 => {
                self.remark(node, format!("{}%", done.saturating_mul(100) / total));
            }
            EventKind::NodeRetry { node, of: 0, msg, .. } => self.remark(node, msg.clone()),
            EventKind::NodeRetry { node, attempt, of, .. } => self.remark(node, format!("attempt {attempt} of {of}")),
            EventKind::NodeFinished { node, .. } => self.end(node),
            _ => {}
        }
    }

    fn begin(&mut self, nodes: usize) {
        let bar = self.screen.add(ProgressBar::new(nodes as u64));
        let template = "{bar:30} {pos}/{len} tasks  {elapsed}  ETA {eta}  {msg}";
        bar.set_style(style(template).progress_chars("━━─").with_key("eta", remaining));
        self.total = Some(bar);
    }

    fn start(&mut self, node: &Arc<NodeInfo>) {
        let busy = self.busy.entry(node.host.clone()).or_insert_with(|| Busy {
            node: node.clone(),
            since: Instant::now(),
            running: 0,
            note: String::new(),
        });
        busy.node = node.clone();
        busy.since = Instant::now();
        busy.note.clear();
        busy.running += 1;
    }

    fn remark(&mut self, node: &Arc<NodeInfo>, note: String) {
        if let Some(busy) = self.busy.get_mut(&node.host) {
            busy.note = note;
        }
    }

    fn end(&mut self, node: &Arc<NodeInfo>) {
        if let Some(total) = &self.total {
            // A handler or a loop can add nodes that were not counted in the beginning.
            if total.position() >= total.length().unwrap_or(0) {
                total.inc_length(1);
            }
            total.inc(1);
        }
        let Some(busy) = self.busy.get_mut(&node.host) else { return };
        busy.running = busy.running.saturating_sub(1);
    }

    /// Makes the screen follow the state.
    fn draw(&mut self) {
        self.busy.retain(|_, busy| busy.running > 0);
        let Some(total) = &self.total else { return };
        total.set_message(self.lines.recap().totals());
        let room = usize::from(Term::stderr().size().0).saturating_sub(SPARE_ROWS).max(1);
        let mut texts: Vec<String> = self.busy.values().take(room).map(|busy| self.row(busy)).collect();
        if self.busy.len() > room {
            let more = format!("+{} more", self.busy.len() - room);
            texts.push(self.look.paint(Tone::Quiet, more).to_string());
        }
        while self.rows.len() > texts.len() {
            if let Some(row) = self.rows.pop() {
                row.finish_and_clear();
                self.screen.remove(&row);
            }
        }
        while self.rows.len() < texts.len() {
            let row = self.screen.insert_before(total, ProgressBar::new_spinner().with_style(style("{msg}")));
            self.rows.push(row);
        }
        for (row, text) in self.rows.iter().zip(texts) {
            row.set_message(text);
        }
        total.tick();
    }

    fn row(&self, busy: &Busy) -> String {
        let seconds = whole_seconds(busy.since.elapsed());
        let more = if busy.running > 1 { format!(" (+{})", busy.running - 1) } else { String::new() };
        let text = format!("{}  {}{more}  {seconds}  {}", busy.node.host, title(&busy.node), busy.note);
        let width = self.look.width.saturating_sub(2);
        let text = truncate_str(text.trim_end(), width, "…").into_owned();
        match text.strip_prefix(busy.node.host.as_str()) {
            Some(rest) => format!("{}{rest}", self.look.paint(Tone::Strong, &busy.node.host)),
            None => text,
        }
    }

    fn clear(&mut self) {
        self.rows.drain(..).for_each(|row| row.finish_and_clear());
        if let Some(total) = self.total.take() {
            total.finish_and_clear();
        }
    }
}

/// Tenths flicker; whole seconds tell as much.
fn whole_seconds(elapsed: Duration) -> String {
    match elapsed.as_secs() {
        seconds @ 0..10 => format!("{seconds}s"),
        _ => duration(elapsed.as_secs_f64()),
    }
}

/// Nothing is known of the time that is left before the first task has ended.
fn remaining(state: &ProgressState, text: &mut dyn fmt::Write) {
    // Writing to a string cannot fail.
    let _ = match state.pos() {
        0 => text.write_str("-"),
        _ => text.write_str(&whole_seconds(state.eta())),
    };
}

fn style(template: &str) -> ProgressStyle {
    // The templates are constants; a mistake in one shows as the default bar, and in the tests.
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

impl Reporter for ProgressReporter {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        self.note(&event.kind);
        let text = self.lines.render(event);
        if matches!(event.kind, EventKind::RunFinished { .. }) {
            self.clear();
        }
        if text.is_empty() {
            return Ok(());
        }
        let out = &mut self.out;
        self.screen.suspend(|| out.write(&text))
    }

    fn frame(&mut self) -> io::Result<()> {
        self.draw();
        Ok(())
    }

    fn finish(&mut self) -> io::Result<()> {
        self.clear();
        Ok(())
    }
}
