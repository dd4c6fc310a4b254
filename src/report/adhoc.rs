//! What `exec` shows: the output of one command, host by host, in Ansible's ad-hoc form.

use std::{fmt::Write, io};

use super::{Detail, Look, Output, Reporter, Tone, diff, live::Live, sanitize};
use crate::model::{Event, EventKind, HostName, RunResult, Shown, Status, Value};

#[derive(Debug)]
pub struct AdhocReporter {
    look: Look,
    detail: Detail,
    out: Output,
    live: Live,
    hosts: usize,
    troubled: usize,
}

impl AdhocReporter {
    pub fn new(look: Look, detail: Detail, out: Output) -> Self {
        Self { look, detail, out, live: Live::default(), hosts: 0, troubled: 0 }
    }

    fn render(&mut self, event: &Event) -> String {
        match &event.kind {
            EventKind::NodeFinished { node, status, result, hint, .. } => {
                self.hosts += 1;
                self.troubled += usize::from(!status.satisfies());
                let rest = self.live.rest(node, &self.look);
                let streamed = self.live.forget(node);
                rest + &self.result(&node.host, *status, result, streamed, hint.as_deref())
            }
            EventKind::NodeOutput { node, stderr, text } if self.detail.verbosity > 0 => {
                self.live.add(node, *stderr, text, &self.look)
            }
            EventKind::Warning { msg } => format!("{} {}\n", self.look.paint(Tone::Warning, "warning:"), sanitize(msg)),
            EventKind::Interrupted => {
                "interrupted: running commands finish; press Ctrl-C again to exit at once\n".to_owned()
            }
            EventKind::RunFinished { result, .. } if *result != RunResult::Success => {
                let text = match self.hosts {
                    // A lock was refused, for example.
                    0 => "nothing was run".to_owned(),
                    hosts => format!("{} of {hosts} hosts did not succeed", self.troubled),
                };
                format!("{}\n", self.look.paint(Tone::Bad, text))
            }
            _ => String::new(),
        }
    }

    fn result(&self, host: &HostName, status: Status, result: &Shown, streamed: bool, hint: Option<&str>) -> String {
        let (word, tone) = match status {
            Status::Ok => ("SUCCESS", Tone::Good),
            Status::Changed => ("CHANGED", Tone::Changed),
            Status::Skipped => ("SKIPPED", Tone::Quiet),
            Status::Failed | Status::Ignored | Status::Rescued => ("FAILED", Tone::Bad),
            Status::Unreachable => ("UNREACHABLE!", Tone::Bad),
            Status::NotRun => ("NOT RUN", Tone::Quiet),
        };
        let code = result.rc.map(|code| format!(" | rc={code}")).unwrap_or_default();
        let mut text = format!("{}\n", self.look.paint(tone, format!("{host} | {word}{code} >>")));
        let shows_message = status != Status::Changed || result.rc.is_none();
        let parts = [(shows_message, &result.msg), (!streamed, &result.stdout), (!streamed, &result.stderr)];
        for (_, part) in parts.into_iter().filter(|(shown, _)| *shown) {
            let part = sanitize(part.trim_end());
            if !part.is_empty() {
                let _ = writeln!(text, "{part}");
            }
        }
        if !result.data.is_empty() && (result.rc.is_none() || self.detail.verbosity > 0) {
            let data = Value::Object(result.data.clone());
            let _ = writeln!(text, "{}", serde_json::to_string_pretty(&data).unwrap_or_default());
        }
        if self.detail.diff {
            text.extend(result.diff.iter().map(|change| diff::unified(change, &self.look)));
        }
        if let Some(hint) = hint {
            let _ = writeln!(text, "hint: {hint}");
        }
        text.push('\n');
        text
    }
}

impl Reporter for AdhocReporter {
    fn event(&mut self, event: &Event) -> io::Result<()> {
        let text = self.render(event);
        self.out.write(&text)
    }
}
