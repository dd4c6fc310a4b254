//! A scripted run for the tests: every kind of event, every status.

use std::sync::Arc;

use serde_json::json;

use crate::model::{Diff, EVENT_VERSION, Event, EventKind, Forecast, NodeInfo, RunResult, Shown, Status, ValueMap};

pub(super) fn node(host: &str, task: &str) -> Arc<NodeInfo> {
    Arc::new(NodeInfo {
        id: format!("Web/{host}/{task}").into(),
        play: "Web".into(),
        task: task.into(),
        role: None,
        module: "command",
        is_message: false,
        rollout: None,
        host: host.into(),
        target: None,
        place: "site.yaml:7".into(),
        handler: false,
        order: 0,
    })
}

pub(super) fn event(kind: EventKind) -> Event {
    Event { at: 1_700_000_000_000, kind }
}

pub(super) fn finished(node: Arc<NodeInfo>, status: Status, seconds: f64, result: Shown) -> Event {
    event(EventKind::NodeFinished { node, status, seconds, result, hint: None, because: None })
}

fn not_run(node: Arc<NodeInfo>, because: &str) -> Event {
    let because = Some(because.into());
    let (status, result) = (Status::NotRun, Shown::default());
    event(EventKind::NodeFinished { node, status, seconds: 0.0, result, hint: None, because })
}

fn says(msg: &str) -> Shown {
    Shown { msg: msg.into(), ..Shown::default() }
}

/// A run with something of everything.
pub(super) fn run() -> Vec<Event> {
    let role = |host: &str, task: &str| {
        Arc::new(NodeInfo {
            role: Some("nginx".into()),
            place: "roles/nginx/tasks/main.yaml:3".into(),
            ..(*node(host, task)).clone()
        })
    };
    let debug = Arc::new(NodeInfo { module: "debug", is_message: true, ..(*node("h1", "Say hello")).clone() });
    let handler = Arc::new(NodeInfo { handler: true, ..(*node("h1", "Restart nginx")).clone() });
    let diff = Diff { label: "/etc/motd".into(), before: "old\n".into(), after: "new\n".into() };
    let data = ValueMap::from_iter([("dest".to_owned(), json!("/etc/motd"))]);
    let version = node("h1", "Show the version");
    let stderr: String = (1..=24).map(|n| format!("line {n}\n")).collect();
    vec![
        event(EventKind::RunStarted {
            version: EVENT_VERSION,
            run: "r1".into(),
            playbook: "site.yaml".into(),
            nodes: 9,
            hosts: 4,
            check_mode: false,
        }),
        event(EventKind::Warning { msg: "the group `empty` has no hosts".into() }),
        event(EventKind::PlayStarted { play: "Web".into(), hosts: 4 }),
        event(EventKind::NodeStarted { node: role("h1", "Write the greeting") }),
        event(EventKind::NodeProgress { node: role("h1", "Write the greeting"), done: 512, total: 1024 }),
        finished(
            role("h1", "Write the greeting"),
            Status::Changed,
            2.3,
            Shown { diff: vec![diff], data, ..Shown::default() },
        ),
        event(EventKind::NodeStarted { node: version.clone() }),
        event(EventKind::NodeOutput { node: version.clone(), stderr: false, text: "nginx/1.2\nbuilt ".into() }),
        event(EventKind::NodeOutput {
            node: version.clone(),
            stderr: false,
            text: "with \x1b[31mcolour\x1b[0m".into(),
        }),
        finished(
            version,
            Status::Ok,
            0.25,
            Shown { rc: Some(0), stdout: "nginx/1.2\nbuilt with colour".into(), ..Shown::default() },
        ),
        finished(debug, Status::Ok, 0.0, says("hello from h1")),
        event(EventKind::NodeRetry { node: node("h1", "Wait"), attempt: 1, of: 3, msg: "not yet".into() }),
        event(EventKind::ItemFinished {
            node: node("h1", "Wait"),
            item: json!("a"),
            status: Status::Ok,
            result: Shown::default(),
        }),
        event(EventKind::ItemFinished {
            node: node("h1", "Wait"),
            item: json!({ "port": 80 }),
            status: Status::Failed,
            result: says("nobody there"),
        }),
        finished(node("h1", "Wait"), Status::Ignored, 1.5, says("one item failed")),
        finished(node("h1", "Try"), Status::Rescued, 0.2, says("did not work")),
        finished(node("h1", "Only on Mondays"), Status::Skipped, 0.0, says("weekday == 'Monday' is false")),
        finished(
            node("h2", "Install nginx"),
            Status::Failed,
            75.0,
            Shown {
                rc: Some(100),
                stderr: stderr + "E: Permission denied\n",
                msg: "apt-get exited with 100".into(),
                ..Shown::default()
            },
        ),
        not_run(node("h2", "Only on Mondays"), "Web/h2/Install nginx"),
        not_run(node("h2", "Show the version"), "Web/h2/Install nginx"),
        finished(node("h3", "Install nginx"), Status::Unreachable, 10.0, says("no route to host 10.0.0.3:22")),
        not_run(node("h3", "Show the version"), "Web/h3/Install nginx"),
        finished(node("h10", "Guess"), Status::Ok, 0.1, Shown { unknown: true, ..Shown::default() }),
        finished(handler, Status::Changed, 0.5, Shown::default()),
        event(EventKind::Interrupted),
        event(EventKind::Moved {
            id: "Web/h1/Write the greeting".into(),
            host: "h1".into(),
            task: "Write the greeting".into(),
            planned: Some(Forecast::Change),
            now: Some(Forecast::Change),
            diff: vec![Diff { label: "/etc/motd".into(), before: "old\n".into(), after: "by hand\n".into() }],
        }),
        event(EventKind::RunFinished {
            run: "r1".into(),
            seconds: 80.2,
            result: RunResult::Failed,
            execs: 7,
            plan: None,
        }),
    ]
}
