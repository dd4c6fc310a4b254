//! Events as lines of text. Shared by the plain and the progress reporter.

use std::{fmt::Write, sync::Arc};

use super::{
    Detail, Look, Tone, diff,
    live::Live,
    recap::Recap,
    sanitize,
    text::{count, duration},
};
use crate::model::{Diff, Event, EventKind, Forecast, HostName, NodeInfo, Shown, Status, Value};

/// How much of a failed command's output is shown without `-v`.
const TAIL_LINES: usize = 20;

/// Which finished tasks get a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Share {
    /// All that did something. Whole roles are skipped where a section of the inventory is absent, which would be a hundred lines.
    Most,
    /// Only what a person must see; the rest is in the progress bars and the recap.
    Trouble,
}

/// Turns events into text, one at a time.
#[derive(Debug)]
pub(super) struct Lines {
    look: Look,
    detail: Detail,
    share: Share,
    recap: Recap,
    host_width: usize,
    live: Live,
}

impl Lines {
    pub(super) fn new(look: Look, detail: Detail, share: Share) -> Self {
        Self {
            look,
            detail,
            // Whoever asks for details wants to see every task.
            share: if detail.verbosity > 0 { Share::Most } else { share },
            recap: Recap::default(),
            host_width: 0,
            live: Live::default(),
        }
    }

    pub(super) fn recap(&self) -> &Recap {
        &self.recap
    }

    /// What to print for an event; often nothing. Whole lines.
    pub(super) fn render(&mut self, event: &Event) -> String {
        self.recap.note(&event.kind);
        match &event.kind {
            EventKind::RunStarted { playbook, nodes, hosts, check_mode, .. } => {
                let mode = if *check_mode { ", check mode: nothing will be changed" } else { "" };
                format!("{playbook}: {} on {}{mode}\n", count(*nodes, "task"), count(*hosts, "host"))
            }
            EventKind::PlayStarted { play, hosts } if self.share == Share::Most => {
                let title = format!("PLAY [{}]", sanitize(play));
                format!("\n{} {}\n", self.look.paint(Tone::Strong, title), count(*hosts, "host"))
            }
            EventKind::NodeStarted { node } if self.detail.verbosity > 1 => self.line("started", Tone::Quiet, node, ""),
            EventKind::NodeOutput { node, stderr, text } if self.detail.verbosity > 0 => {
                self.live.add(node, *stderr, text, &self.look)
            }
            EventKind::NodeRetry { node, attempt, of, msg } if self.share == Share::Most => {
                let colon = if msg.is_empty() { "" } else { ": " };
                let tail = match of {
                    0 => format!("({})", sanitize(msg)),
                    _ => format!("(attempt {attempt} of {of}{colon}{})", sanitize(msg)),
                };
                self.line("retry", Tone::Warning, node, &tail)
            }
            EventKind::ItemFinished { node, item, status, result } => self.item(node, item, *status, result),
            EventKind::NodeFinished { node, status, seconds, result, hint, .. } => {
                self.finished(node, *status, *seconds, result, hint.as_deref())
            }
            EventKind::Warning { msg } => format!("{} {}\n", self.look.paint(Tone::Warning, "warning:"), sanitize(msg)),
            EventKind::Moved { host, task, planned, now, diff, .. } => self.moved(host, task, *planned, *now, diff),
            EventKind::Interrupted => {
                let text = "interrupted: running tasks finish, no new ones start; press Ctrl-C again to exit at once";
                format!("{}\n", self.look.paint(Tone::Warning, text))
            }
            EventKind::RunFinished { seconds, result, execs, .. } => {
                let execs = (self.detail.verbosity > 0).then_some(*execs);
                self.recap.render(*seconds, *result, execs, &self.look)
            }
            _ => String::new(),
        }
    }

    fn finished(
        &mut self,
        node: &Arc<NodeInfo>,
        status: Status,
        seconds: f64,
        result: &Shown,
        hint: Option<&str>,
    ) -> String {
        let mut text = self.live.rest(node, &self.look);
        let streamed = self.live.forget(node);
        if !self.is_shown(node, status, result) {
            return text;
        }
        let (word, tone) = verdict(status, result.unknown);
        let mut tail = format!("({})", duration(seconds));
        if matches!(status, Status::Skipped | Status::NotRun) {
            tail = sanitize(&result.msg).into_owned();
        }
        text.push_str(&self.line(word, tone, node, &tail));
        match status {
            Status::Failed | Status::Unreachable | Status::Ignored | Status::Rescued => {
                self.failure(&mut text, node, result, streamed, hint)
            }
            Status::Ok | Status::Changed => self.success(&mut text, node, result, streamed),
            Status::Skipped | Status::NotRun => {}
        }
        text
    }

    fn is_shown(&self, node: &NodeInfo, status: Status, result: &Shown) -> bool {
        match status {
            Status::Failed | Status::Unreachable | Status::Ignored | Status::Rescued => true,
            Status::NotRun | Status::Skipped => self.detail.verbosity > 0,
            _ if self.share == Share::Most => true,
            _ => speaks(node, result) || (self.detail.diff && !result.diff.is_empty()),
        }
    }

    fn success(&self, text: &mut String, node: &NodeInfo, result: &Shown, streamed: bool) {
        let verbose = self.detail.verbosity > 0;
        if !result.msg.is_empty() && (verbose || speaks(node, result)) {
            self.field(text, "message", &result.msg);
        }
        if verbose && !streamed {
            self.field(text, "stdout", &result.stdout);
            self.field(text, "stderr", &result.stderr);
        }
        if verbose && !result.data.is_empty() {
            self.field(text, "result", &pretty(&Value::Object(result.data.clone())));
        }
        self.diffs(text, result);
    }

    fn failure(&self, text: &mut String, node: &NodeInfo, result: &Shown, streamed: bool, hint: Option<&str>) {
        self.field(text, "at", &node.place);
        if let Some(target) = &node.target {
            self.field(text, "ran on", target.as_str());
        }
        self.field(text, "message", &result.msg);
        if let Some(code) = result.rc.filter(|code| !result.msg.ends_with(&format!(" {code}"))) {
            self.field(text, "exit code", &code.to_string());
        }
        if !streamed {
            self.field(text, "stdout", &self.tail(&result.stdout));
            self.field(text, "stderr", &self.tail(&result.stderr));
        }
        if self.detail.verbosity > 0 && !result.data.is_empty() {
            self.field(text, "result", &pretty(&Value::Object(result.data.clone())));
        }
        self.diffs(text, result);
        if let Some(hint) = hint {
            self.field(text, "hint", hint);
        }
    }

    /// A node that is not what it was when it was planned: what moved is shown whatever was asked for.
    fn moved(
        &self,
        host: &HostName,
        task: &str,
        planned: Option<Forecast>,
        now: Option<Forecast>,
        diff: &[Diff],
    ) -> String {
        let word = self.look.paint(Tone::Bad, format!("{:<11}", "moved"));
        let mut text = format!("{word} {host}  {}\n", sanitize(task));
        let name = |forecast: Option<Forecast>| forecast.map_or("not in the plan", Forecast::name);
        let verdicts = match planned == now {
            true => format!("{}, but with a different result", name(now)),
            false => format!("{}; planned: {}", name(now), name(planned)),
        };
        self.field(&mut text, "now", &verdicts);
        for line in diff.iter().flat_map(|diff| diff::moved(diff, &self.look)) {
            let _ = writeln!(text, "    {line}");
        }
        text
    }

    fn diffs(&self, text: &mut String, result: &Shown) {
        if !self.detail.diff {
            return;
        }
        for change in &result.diff {
            for line in diff::unified(change, &self.look).lines() {
                let _ = writeln!(text, "    {line}");
            }
        }
    }

    fn item(&mut self, node: &NodeInfo, item: &Value, status: Status, result: &Shown) -> String {
        let failed = matches!(status, Status::Failed | Status::Unreachable);
        let is_shown = match status {
            Status::Skipped => self.detail.verbosity > 0,
            _ => failed || self.share == Share::Most || speaks(node, result),
        };
        if !is_shown {
            return String::new();
        }
        let (word, tone) = verdict(status, result.unknown);
        let mut text = self.line(word, tone, node, &format!("(item: {})", sanitize(&one_line(item))));
        match failed {
            true => self.failure(&mut text, node, result, false, None),
            false => self.success(&mut text, node, result, false),
        }
        text
    }

    fn line(&mut self, word: &str, tone: Tone, node: &NodeInfo, tail: &str) -> String {
        self.host_width = self.host_width.max(console::measure_text_width(node.host.as_str()));
        let host = console::pad_str(node.host.as_str(), self.host_width, console::Alignment::Left, None).into_owned();
        let word = self.look.paint(tone, format!("{word:<11}"));
        let tail = if tail.is_empty() { String::new() } else { format!("  {}", self.look.paint(Tone::Quiet, tail)) };
        format!("{word} {host}  {}{tail}\n", title(node))
    }

    /// A named detail under a task's line; several lines are indented alike.
    fn field(&self, text: &mut String, name: &str, value: &str) {
        let value = sanitize(value.trim_end());
        if value.is_empty() {
            return;
        }
        for (number, line) in value.lines().enumerate() {
            let name = if number == 0 { name } else { "" };
            let _ = writeln!(text, "    {} {line}", self.look.paint(Tone::Quiet, format!("{name:<10}")));
        }
    }

    fn tail(&self, output: &str) -> String {
        let lines: Vec<&str> = output.trim_end().lines().collect();
        if self.detail.verbosity > 0 || lines.len() <= TAIL_LINES {
            return lines.join("\n");
        }
        let hidden = lines.len() - TAIL_LINES;
        format!("[{} before this; -v shows all]\n{}", count(hidden, "line"), lines[hidden..].join("\n"))
    }
}

/// `role : task`, as Ansible writes it, and `(handler)` where it is one.
pub(super) fn title(node: &NodeInfo) -> String {
    let role = node.role.as_ref().map(|role| format!("{role} : ")).unwrap_or_default();
    let kind = if node.handler { " (handler)" } else { "" };
    sanitize(&format!("{role}{}{kind}", node.task)).replace('\n', " ")
}

/// A module whose whole purpose is its message.
fn speaks(node: &NodeInfo, result: &Shown) -> bool {
    node.is_message && !result.msg.is_empty()
}

fn verdict(status: Status, unknown: bool) -> (&'static str, Tone) {
    match status {
        _ if unknown => ("unknown", Tone::Warning),
        Status::Ok => ("ok", Tone::Good),
        Status::Changed => ("changed", Tone::Changed),
        Status::Skipped => ("skipped", Tone::Quiet),
        Status::Failed => ("failed", Tone::Bad),
        Status::Ignored => ("ignored", Tone::Warning),
        Status::Rescued => ("rescued", Tone::Warning),
        Status::Unreachable => ("unreachable", Tone::Bad),
        Status::NotRun => ("not run", Tone::Quiet),
    }
}

fn one_line(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_else(|_| value.to_string())
}
