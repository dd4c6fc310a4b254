//! What people and programs read, from one scripted run.

use std::{
    io::{self, Write},
    sync::{Arc, Mutex, mpsc},
};

use indicatif::{MultiProgress, ProgressDrawTarget};

use super::{
    AdhocReporter, Detail, JsonReporter, Look, Output, PlainReporter, ProgressReporter, Reporter,
    script::{event, finished, node, run},
    spawn,
};
use crate::model::{Emitter, Event, EventKind, RunResult, Shown, Status};

#[derive(Clone, Default)]
struct Buffer(Arc<Mutex<Vec<u8>>>);

impl Write for Buffer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Sends events through the reporter's own thread, as a run does.
fn report(events: Vec<Event>, reporter: impl FnOnce(Output) -> Box<dyn Reporter>) -> String {
    let buffer = Buffer::default();
    let (sender, receiver) = mpsc::channel();
    let thread = spawn(receiver, reporter(Output::to(buffer.clone())));
    for event in events {
        // The reporter leaves after the last event of a run.
        let _ = sender.send(event);
    }
    drop(sender);
    thread.join().unwrap();
    String::from_utf8(buffer.0.lock().unwrap().clone()).unwrap()
}

fn plain(events: Vec<Event>, detail: Detail) -> String {
    report(events, |out| Box::new(PlainReporter::new(Look::PLAIN, detail, out)))
}

#[test]
fn plain_lines() {
    let text = plain(run(), Detail::default());
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "{text:?}");
    insta::assert_snapshot!(text);
}

#[test]
fn plain_lines_with_details_and_diff() {
    insta::assert_snapshot!(plain(run(), Detail { verbosity: 1, diff: true }));
}

#[test]
fn json_lines() {
    let text = report(run(), |out| Box::new(JsonReporter::new(out)));
    assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()));
    insta::assert_snapshot!(text);
}

#[test]
fn every_event_is_documented() {
    let docs = include_str!("../../docs/events.md");
    let names: std::collections::BTreeSet<String> = run().iter().map(event_name).collect();
    assert_eq!(names.len(), 12, "the script has every kind of event");
    for name in names {
        assert!(docs.contains(&format!("| `{name}` |")), "docs/events.md lacks {name}");
    }
}

fn event_name(event: &Event) -> String {
    serde_json::to_value(event).unwrap()["event"].as_str().unwrap().to_owned()
}

#[test]
fn adhoc_results() {
    insta::assert_snapshot!(report(run(), |out| Box::new(AdhocReporter::new(Look::PLAIN, Detail::default(), out))));
}

#[test]
fn progress_leaves_trouble_and_the_recap() {
    let screen = MultiProgress::with_draw_target(ProgressDrawTarget::hidden());
    let text = report(run(), |out| Box::new(ProgressReporter::new(Look::PLAIN, Detail::default(), out, screen)));
    insta::assert_snapshot!(text);
}

#[test]
fn many_good_hosts_share_a_line_of_the_recap() {
    let good = (1..=60).map(|n| finished(node(&format!("hv{n}"), "Ping"), Status::Ok, 0.1, Shown::default()));
    let bad = ["hv100", "hv70"].map(|host| finished(node(host, "Ping"), Status::Failed, 0.1, Shown::default()));
    let end = event(EventKind::RunFinished {
        run: "r".into(),
        seconds: 1.0,
        result: RunResult::Failed,
        execs: 1,
        plan: None,
    });
    let text = plain(good.chain(bad).chain([end]).collect(), Detail::default());
    let recap = text.split_once("RECAP").unwrap().1;
    insta::assert_snapshot!(recap);
}

struct Closed;

impl Write for Closed {
    fn write(&mut self, _: &[u8]) -> io::Result<usize> {
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_closed_pipe_silences_the_reporter_and_nothing_else() {
    let (sender, receiver) = mpsc::channel();
    let thread = spawn(receiver, Box::new(JsonReporter::new(Output::to(Closed))));
    sender.send(run().remove(0)).unwrap();
    // It ends at once; whoever emits neither waits nor fails.
    thread.join().unwrap();
    Emitter::channel().0.emit(EventKind::Interrupted);
}
