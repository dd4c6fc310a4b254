//! What came of a run, in all: counts per host, the slowest tasks, and what was not run and why.

use std::{collections::HashMap, fmt::Write, sync::Arc};

use indexmap::IndexMap;

use super::{
    Look, Tone,
    lines::title,
    text::{count, duration},
};
use crate::model::{EventKind, HostName, NodeInfo, RunResult, Status};

/// Beyond this many hosts, those without trouble share one line.
const MAX_HOSTS: usize = 40;

const SLOWEST: usize = 5;

/// A task that took less is not worth a line among the slowest.
const SLOW_SECONDS: f64 = 1.0;

/// Ansible's meaning: `ok` counts every task that went well, changed and ignored ones too.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    ok: usize,
    changed: usize,
    skipped: usize,
    failed: usize,
    unreachable: usize,
    rescued: usize,
    ignored: usize,
    not_run: usize,
    seconds: f64,
}

/// A column of the table.
struct Column {
    title: &'static str,
    count: fn(&Counts) -> usize,
    tone: Tone,
    /// Others are left out where they would hold nothing but noughts: the table has to fit a terminal.
    always: bool,
}

const COLUMNS: &[Column] = &[
    Column { title: "ok", count: |counts| counts.ok, tone: Tone::Good, always: true },
    Column { title: "changed", count: |counts| counts.changed, tone: Tone::Changed, always: true },
    Column { title: "skipped", count: |counts| counts.skipped, tone: Tone::Plain, always: true },
    Column { title: "failed", count: |counts| counts.failed, tone: Tone::Bad, always: true },
    Column { title: "unreachable", count: |counts| counts.unreachable, tone: Tone::Bad, always: true },
    Column { title: "rescued", count: |counts| counts.rescued, tone: Tone::Warning, always: false },
    Column { title: "ignored", count: |counts| counts.ignored, tone: Tone::Warning, always: false },
    Column { title: "not run", count: |counts| counts.not_run, tone: Tone::Warning, always: false },
];

/// A node that was not run, and the node that it waited for in vain.
#[derive(Debug)]
struct NotRun {
    node: Arc<NodeInfo>,
    because: Option<Arc<str>>,
}

/// Gathers events, prints once.
#[derive(Debug, Default)]
pub(super) struct Recap {
    hosts: IndexMap<HostName, Counts>,
    slowest: Vec<(f64, Arc<NodeInfo>)>,
    /// Nodes that failed or whose host was unreachable, by id.
    failures: HashMap<Arc<str>, (Arc<NodeInfo>, Status)>,
    /// Nodes that were not run, by id.
    not_run: IndexMap<Arc<str>, NotRun>,
}

impl Recap {
    pub(super) fn note(&mut self, kind: &EventKind) {
        let EventKind::NodeFinished { node, status, seconds, because, .. } = kind else { return };
        self.hosts.entry(node.host.clone()).or_default().add(*status, *seconds);
        match status {
            Status::NotRun => {
                let entry = NotRun { node: node.clone(), because: because.clone() };
                self.not_run.insert(node.id.clone(), entry);
            }
            Status::Failed | Status::Unreachable => {
                self.failures.insert(node.id.clone(), (node.clone(), *status));
            }
            _ => {}
        }
        self.note_time(*seconds, node);
    }

    fn note_time(&mut self, seconds: f64, node: &Arc<NodeInfo>) {
        if seconds < SLOW_SECONDS {
            return;
        }
        let at = self.slowest.partition_point(|(other, _)| *other >= seconds);
        if at < SLOWEST {
            self.slowest.insert(at, (seconds, node.clone()));
            self.slowest.truncate(SLOWEST);
        }
    }

    /// A short word on how it goes, for the progress bar.
    pub(super) fn totals(&self) -> String {
        let all = self.total();
        let part = |number: usize, word: &str| (number > 0).then(|| format!("{number} {word}"));
        let parts = [part(all.changed, "changed"), part(all.failed, "failed"), part(all.unreachable, "unreachable")];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    fn total(&self) -> Counts {
        self.hosts.values().fold(Counts::default(), |sum, counts| sum.plus(counts))
    }

    /// `execs` is for those who want to know how many commands it took.
    pub(super) fn render(&self, seconds: f64, result: RunResult, execs: Option<u64>, look: &Look) -> String {
        let mut text = String::new();
        self.render_table(&mut text, look);
        self.render_slowest(&mut text, look);
        self.render_not_run(&mut text, look);
        let (tone, verdict) = self.verdict(result);
        let execs = execs.map(|execs| format!(", {}", count(usize::try_from(execs).unwrap_or(usize::MAX), "exec")));
        let execs = execs.unwrap_or_default();
        push(&mut text, format_args!("\n{} ({}{execs})", look.paint(tone, verdict), duration(seconds)));
        text
    }

    fn verdict(&self, result: RunResult) -> (Tone, String) {
        let word = match result {
            RunResult::Success => return (Tone::Good, "done".to_owned()),
            RunResult::Failed => "failed",
            RunResult::Unreachable => "unreachable",
            RunResult::GateRefused => "a gate refused",
            RunResult::LockHeld => "another run holds the lock",
            RunResult::Moved => "the hosts have changed since the plan, so nothing was run",
            RunResult::Interrupted => "interrupted",
        };
        let hosts = |is: fn(&Counts) -> bool| self.hosts.values().filter(|counts| is(counts)).count();
        let (failed, unreachable) = (hosts(|counts| counts.failed > 0), hosts(|counts| counts.unreachable > 0));
        let mut parts = vec![word.to_owned()];
        if failed > 0 {
            parts.push(format!("{} had a failed task", count(failed, "host")));
        }
        if unreachable > 0 {
            let verb = if unreachable == 1 { "was" } else { "were" };
            parts.push(format!("{} {verb} unreachable", count(unreachable, "host")));
        }
        let head = parts.remove(0);
        let tail = parts.join(", ");
        let tone = if result == RunResult::Interrupted { Tone::Warning } else { Tone::Bad };
        (tone, if tail.is_empty() { head } else { format!("{head}: {tail}") })
    }

    fn render_table(&self, text: &mut String, look: &Look) {
        if self.hosts.is_empty() {
            return;
        }
        let (good, troubled): (Vec<_>, Vec<_>) = self.hosts.iter().partition(|(_, counts)| counts.is_good());
        let collapsed = self.hosts.len() > MAX_HOSTS && good.len() > 1;
        let together = format!("{} succeeded", count(good.len(), "host"));
        let mut rows: Vec<(&str, Counts)> = match collapsed {
            true => {
                let sum = good.iter().fold(Counts::default(), |sum, (_, counts)| sum.plus(counts));
                let troubled = troubled.iter().map(|(host, counts)| (host.as_str(), **counts));
                std::iter::once((together.as_str(), sum)).chain(troubled).collect()
            }
            false => self.hosts.iter().map(|(host, counts)| (host.as_str(), *counts)).collect(),
        };
        rows[usize::from(collapsed)..].sort_by_key(|(host, _)| natural(host));
        let width =
            rows.iter().map(|(host, _)| console::measure_text_width(host)).max().unwrap_or(0).max("RECAP".len());
        let total = self.total();
        let columns: Vec<&Column> =
            COLUMNS.iter().filter(|column| column.always || (column.count)(&total) > 0).collect();
        let titles: String = columns.iter().map(|column| format!("  {:>1$}", column.title, column.width())).collect();
        let header = format!("{:width$}{titles}  {:>7}", "RECAP", "time");
        push(text, format_args!("\n{}", look.paint(Tone::Strong, header)));
        for (host, counts) in rows {
            push(text, format_args!("{}", counts.row(host, width, &columns, look)));
        }
    }

    fn render_slowest(&self, text: &mut String, look: &Look) {
        if self.slowest.is_empty() {
            return;
        }
        push(text, format_args!("\n{}", look.paint(Tone::Strong, "SLOWEST TASKS")));
        for (seconds, node) in &self.slowest {
            let place = look.paint(Tone::Quiet, &node.place);
            push(text, format_args!("{:>7}  {} on {}  {place}", duration(*seconds), title(node), node.host));
        }
    }

    /// What was not run, by the failure that is the cause in the end.
    fn causes(&self) -> IndexMap<Option<&Arc<str>>, Vec<&NodeInfo>> {
        let mut causes: IndexMap<_, Vec<&NodeInfo>> = IndexMap::new();
        for NotRun { node, because } in self.not_run.values() {
            let mut cause = because.as_ref();
            // What a node waited for may itself have waited; the bound is for a circle that cannot be.
            for _ in 0..self.not_run.len() {
                let Some(further) = cause.and_then(|id| self.not_run.get(id)) else { break };
                cause = further.because.as_ref();
            }
            causes.entry(cause).or_default().push(node);
        }
        causes
    }

    fn render_not_run(&self, text: &mut String, look: &Look) {
        if self.not_run.is_empty() {
            return;
        }
        push(text, format_args!("\n{}", look.paint(Tone::Strong, "NOT RUN")));
        for (cause, nodes) in self.causes() {
            let mut hosts: Vec<&str> = nodes.iter().map(|node| node.host.as_str()).collect();
            hosts.sort_unstable();
            hosts.dedup();
            let what = format!("{} on {}", count(nodes.len(), "task"), some_of(&hosts));
            let why = match cause.map(|id| (id, self.failures.get(id))) {
                Some((_, Some((node, Status::Unreachable)))) => {
                    format!("because {} was unreachable at “{}”", node.host, title(node))
                }
                Some((_, Some((node, _)))) => {
                    format!("because “{}” failed on {} ({})", title(node), node.host, node.place)
                }
                Some((id, None)) => format!("because of {id}"),
                None => "because the run was stopped".to_owned(),
            };
            push(text, format_args!("  {what}, {why}"));
        }
    }
}

impl Counts {
    fn add(&mut self, status: Status, seconds: f64) {
        self.seconds += seconds;
        match status {
            Status::Ok => self.ok += 1,
            Status::Changed => {
                self.ok += 1;
                self.changed += 1;
            }
            Status::Ignored => {
                self.ok += 1;
                self.ignored += 1;
            }
            Status::Rescued => self.rescued += 1,
            Status::Skipped => self.skipped += 1,
            Status::Failed => self.failed += 1,
            Status::Unreachable => self.unreachable += 1,
            Status::NotRun => self.not_run += 1,
        }
    }

    fn plus(self, other: &Self) -> Self {
        Self {
            ok: self.ok + other.ok,
            changed: self.changed + other.changed,
            skipped: self.skipped + other.skipped,
            failed: self.failed + other.failed,
            unreachable: self.unreachable + other.unreachable,
            rescued: self.rescued + other.rescued,
            ignored: self.ignored + other.ignored,
            not_run: self.not_run + other.not_run,
            seconds: self.seconds + other.seconds,
        }
    }

    fn is_good(&self) -> bool {
        self.failed == 0 && self.unreachable == 0 && self.not_run == 0
    }

    fn row(&self, host: &str, width: usize, columns: &[&Column], look: &Look) -> String {
        let host = console::pad_str(host, width, console::Alignment::Left, None);
        let tone = match self {
            Self { failed: 1.., .. } | Self { unreachable: 1.., .. } => Tone::Bad,
            Self { not_run: 1.., .. } => Tone::Warning,
            Self { changed: 1.., .. } => Tone::Changed,
            _ => Tone::Good,
        };
        let cell = |column: &&Column| {
            let number = (column.count)(self);
            let tone = if number > 0 { column.tone } else { Tone::Quiet };
            format!("  {}", look.paint(tone, format!("{number:>0$}", column.width())))
        };
        let cells: String = columns.iter().map(cell).collect();
        format!("{}{cells}  {:>7}", look.paint(tone, host), duration(self.seconds))
    }
}

impl Column {
    fn width(&self) -> usize {
        self.title.len().max(5)
    }
}

pub(super) fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 4;
    match names.len() {
        0..=SHOWN => names.join(", "),
        more => format!("{} and {} more", names[..SHOWN].join(", "), more - SHOWN),
    }
}

/// A sort key that puts `hv2` before `hv10`.
pub(super) fn natural(name: &str) -> Vec<(String, u64)> {
    let mut key = Vec::new();
    let mut rest = name;
    while !rest.is_empty() {
        let letters = rest.find(|c: char| c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest[letters..].find(|c: char| !c.is_ascii_digit()).map_or(rest.len(), |at| letters + at);
        key.push((rest[..letters].to_owned(), rest[letters..digits].parse().unwrap_or(u64::MAX)));
        rest = &rest[digits..];
    }
    key
}

fn push(text: &mut String, line: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{line}");
}
