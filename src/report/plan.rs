//! A plan as people read it: every task in the order of the playbook, hosts of which the same can be said together.

use std::{collections::BTreeSet, fmt::Write, io, sync::Arc};

use indexmap::IndexMap;
use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use super::{
    Detail, Look, Output, Reporter, Tone, diff,
    lines::title,
    recap::{natural, some_of},
    rollouts, sanitize,
    text::{count, duration},
};
use crate::model::{Event, EventKind, Forecast, NodeInfo, PlanCounts, RunResult, Shown, Status};

/// Where what is said of a task begins.
const INDENT: &str = "            ";

#[derive(Debug)]
pub struct PlanReporter {
    look: Look,
    detail: Detail,
    out: Output,
    screen: Option<MultiProgress>,
    bar: Option<ProgressBar>,
    /// By the place of the task in the graph, then by what is said of it.
    nodes: Vec<Foreseen>,
}

#[derive(Debug)]
struct Foreseen {
    node: Arc<NodeInfo>,
    status: Status,
    result: Shown,
    hint: Option<String>,
    because: Option<Arc<str>>,
}

/// One task with all hosts of which the same can be said.
struct Group<'a> {
    first: &'a Foreseen,
    hosts: Vec<&'a str>,
    text: String,
}

impl PlanReporter {
    /// `screen` is for a bar while the hosts are asked.
    pub fn new(look: Look, detail: Detail, out: Output, screen: Option<MultiProgress>) -> Self {
        Self { look, detail, out, screen, bar: None, nodes: Vec::new() }
    }

    fn write(&mut self, text: &str) -> io::Result<()> {
        let out = &mut self.out;
        match &self.screen {
            Some(screen) => screen.suspend(|| out.write(text)),
            None => out.write(text),
        }
    }

    fn begin(&mut self, nodes: usize) {
        let Some(screen) = &self.screen else { return };
        let bar = screen.add(ProgressBar::new(nodes as u64));
        if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} tasks  {elapsed}") {
            bar.set_style(style.progress_chars("━━─"));
        }
        self.bar = Some(bar);
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }

    fn plan(&mut self) -> String {
        self.nodes.sort_by_key(|foreseen| foreseen.node.order);
        let mut plays: IndexMap<&str, IndexMap<(&str, String), Vec<&Foreseen>>> = IndexMap::new();
        for foreseen in self.nodes.iter().filter(|foreseen| self.is_shown(foreseen)) {
            let task = (&*foreseen.node.place, title(&foreseen.node));
            plays.entry(&foreseen.node.play).or_default().entry(task).or_default().push(foreseen);
        }
        let mut text = String::new();
        for (play, tasks) in plays {
            let head = format!("PLAY [{}]", sanitize(play));
            let _ = writeln!(text, "\n{}", self.look.paint(Tone::Strong, head));
            for group in tasks.into_values().flat_map(|nodes| self.groups(nodes)) {
                self.group(&mut text, &group);
            }
        }
        text
    }

    /// What is passed over for its condition is of interest to few.
    fn is_shown(&self, foreseen: &Foreseen) -> bool {
        foreseen.status != Status::Skipped || self.detail.verbosity > 0
    }

    fn groups<'a>(&self, nodes: Vec<&'a Foreseen>) -> Vec<Group<'a>> {
        let mut groups: Vec<Group<'a>> = Vec::new();
        for foreseen in nodes {
            let (text, host) = (self.said(foreseen), foreseen.node.host.as_str());
            let same = |group: &&mut Group<'_>| group.text == text && verdict(group.first) == verdict(foreseen);
            match groups.iter_mut().find(same) {
                Some(group) => group.hosts.push(host),
                None => groups.push(Group { first: foreseen, hosts: vec![host], text }),
            }
        }
        groups.iter_mut().for_each(|group| group.hosts.sort_by_key(|host| natural(host)));
        groups
    }

    fn group(&self, text: &mut String, group: &Group<'_>) {
        let (word, tone) = verdict(group.first);
        let word = self.look.paint(tone, format!("{word:<11}"));
        let hosts = self.look.paint(Tone::Quiet, format!("on {}", some_of(&group.hosts)));
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{word} {}  {hosts}", title(&group.first.node));
        for line in group.text.lines() {
            let _ = writeln!(text, "{INDENT}{line}");
        }
    }

    /// What there is to say beyond the verdict.
    fn said(&self, foreseen: &Foreseen) -> String {
        let Foreseen { node, status, result, hint, because } = foreseen;
        let mut text = String::new();
        let is_bad = Forecast::of(*status, result.unknown) == Forecast::Failed;
        let speaks = is_bad || result.unknown || *status != Status::Ok || self.detail.verbosity > 0 || node.is_message;
        // A diff says it better.
        if speaks && !result.msg.is_empty() && (is_bad || result.diff.is_empty()) {
            let _ = writeln!(text, "{}", self.look.paint(Tone::Quiet, sanitize(result.msg.trim_end())));
        }
        if is_bad && *status != Status::NotRun {
            for said in [result.stderr.trim_end(), result.stdout.trim_end()].into_iter().filter(|said| !said.is_empty())
            {
                let _ = writeln!(text, "{}", sanitize(said));
            }
            let _ = writeln!(text, "{}", self.look.paint(Tone::Quiet, format!("at {}", node.place)));
            if let Some(hint) = hint {
                let _ = writeln!(text, "{}", self.look.paint(Tone::Quiet, format!("hint: {}", sanitize(hint))));
            }
        }
        if let Some(because) = because.as_ref().filter(|_| *status == Status::NotRun) {
            let _ = writeln!(text, "{}", self.look.paint(Tone::Quiet, format!("because of {}", sanitize(because))));
        }
        result.diff.iter().for_each(|change| text.push_str(&diff::unified(change, &self.look)));
        text
    }

    fn summary(&self, seconds: f64, result: RunResult) -> String {
        let mut counts = PlanCounts::default();
        self.nodes.iter().for_each(|node| counts.add(Forecast::of(node.status, node.result.unknown)));
        let hosts: BTreeSet<&str> = self.nodes.iter().map(|node| node.node.host.as_str()).collect();
        let part = |number: usize, word: &str, tone: Tone| {
            let text = format!("{number} {word}");
            self.look.paint(if number > 0 { tone } else { Tone::Plain }, text).to_string()
        };
        let mut parts = vec![
            part(counts.change, "to change", Tone::Changed),
            part(counts.no_change, "unchanged", Tone::Good),
            part(counts.unknown, "unknown", Tone::Warning),
        ];
        if counts.failed > 0 {
            parts.push(part(counts.failed, "failed", Tone::Bad));
        }
        let plan = self.look.paint(Tone::Strong, "Plan:");
        let mut text = format!("\n{plan} {} on {}", parts.join(", "), count(hosts.len(), "host"));
        let _ = write!(text, "{}", self.look.paint(Tone::Quiet, format!(" ({})", duration(seconds))));
        if result == RunResult::Interrupted {
            text.push_str(", interrupted");
        }
        text + "\n"
    }
}

fn verdict(foreseen: &Foreseen) -> (&'static str, Tone) {
    match (foreseen.status, Forecast::of(foreseen.status, foreseen.result.unknown)) {
        (Status::Unreachable, _) => ("unreachable", Tone::Bad),
        (Status::NotRun, _) => ("not planned", Tone::Warning),
        (Status::Skipped, _) => ("skipped", Tone::Quiet),
        (Status::Ignored, _) => ("ignored", Tone::Warning),
        (Status::Rescued, _) => ("rescued", Tone::Warning),
        (_, forecast @ Forecast::Change) => (forecast.name(), Tone::Changed),
        (_, forecast @ Forecast::NoChange) => (forecast.name(), Tone::Good),
        (_, forecast @ Forecast::Unknown) => (forecast.name(), Tone::Warning),
        (_, forecast @ Forecast::Failed) => (forecast.name(), Tone::Bad),
    }
}

impl Reporter for PlanReporter {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        match &event.kind {
            EventKind::RunStarted { playbook, nodes, hosts, .. } => {
                let text = format!("{playbook}: {} on {}\n", count(*nodes, "task"), count(*hosts, "host"));
                self.write(&text)?;
                self.begin(*nodes);
                Ok(())
            }
            EventKind::NodeFinished { node, status, result, hint, because, .. } => {
                let (node, result, hint, because) = (node.clone(), result.clone(), hint.clone(), because.clone());
                self.nodes.push(Foreseen { node, status: *status, result, hint, because });
                self.bar.iter().for_each(|bar| bar.inc(1));
                Ok(())
            }
            EventKind::Warning { msg } => {
                let text = format!("{} {}\n", self.look.paint(Tone::Warning, "warning:"), sanitize(msg));
                self.write(&text)
            }
            EventKind::RunFinished { seconds, result, .. } => {
                self.clear();
                let tasks = self.plan();
                let results = self.nodes.iter().filter_map(|foreseen| Some((foreseen.node.rollout?, &foreseen.result)));
                let text = tasks + &rollouts::told(results) + &self.summary(*seconds, *result);
                self.write(&text)
            }
            _ => Ok(()),
        }
    }

    fn finish(&mut self) -> io::Result<()> {
        self.clear();
        Ok(())
    }
}
