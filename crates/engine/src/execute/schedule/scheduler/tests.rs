use std::sync::Arc;

use super::*;
use crate::{
    execute,
    model::{Event, RunResult},
    state::{Line, NodeKey, Record, Recorder},
    testing::{inventory, run},
};

const HOSTS: &str = "hosts: { a: {}, b: {}, c: {}, d: {} }\n";

/// How a playbook ends on four hosts, and what became of each task there, in the order in which they ended.
async fn play(text: &str) -> (RunResult, Vec<(String, String, Status)>) {
    let (run, events) = run(&inventory(HOSTS), text);
    let result = execute::run(run).await;
    let ended = |event: Event| match event.kind {
        EventKind::NodeFinished { node, status, .. } => Some((node.host.to_string(), node.task.to_string(), status)),
        _ => None,
    };
    (result, events.into_iter().filter_map(ended).collect())
}

fn of<'a>(ended: &'a [(String, String, Status)], host: &str) -> Vec<(&'a str, Status)> {
    ended.iter().filter(|(on, ..)| on == host).map(|(_, task, status)| (task.as_str(), *status)).collect()
}

#[tokio::test]
async fn a_host_that_fails_is_left_behind_and_the_others_go_on() {
    let (result, ended) = play(
        "- hosts: all\n  tasks:\n    - { name: one, say: { fail: \"{{ inventory_hostname == 'b' }}\" } }\n    - { name: two, say: {} }\n",
    )
    .await;
    assert_eq!(result, RunResult::Failed);
    assert_eq!(of(&ended, "b"), [("one", Status::Failed), ("two", Status::NotRun)]);
    for host in ["a", "c", "d"] {
        assert_eq!(of(&ended, host), [("one", Status::Ok), ("two", Status::Ok)], "{host}");
    }
}

#[tokio::test]
async fn a_batch_that_is_lost_ends_the_run_before_the_next_one() {
    let (result, ended) = play("- hosts: all\n  serial: 2\n  tasks:\n    - { name: one, say: { fail: true } }\n").await;
    assert_eq!(result, RunResult::Failed);
    assert_eq!(of(&ended, "a"), [("one", Status::Failed)]);
    assert_eq!(of(&ended, "c"), [("one", Status::NotRun)]);
}

#[tokio::test]
async fn too_many_failures_end_a_play_and_what_is_behind_it() {
    const FAIL: &str = "    - { name: one, say: { fail: \"{{ inventory_hostname in ['a', 'b'] }}\" } }\n    - { name: two, say: {} }\n- hosts: all\n  tasks:\n    - { name: three, say: {} }\n";
    for (limit, status) in [("max_fail_percentage: 40", Status::NotRun), ("max_fail_percentage: 50", Status::Ok)] {
        let (result, ended) = play(&format!("- hosts: all\n  {limit}\n  tasks:\n{FAIL}")).await;
        assert_eq!(result, RunResult::Failed);
        assert_eq!(of(&ended, "d").last(), Some(&("three", status)), "{limit}");
    }
    let (_, ended) = play(&format!("- hosts: all\n  any_errors_fatal: true\n  tasks:\n{FAIL}")).await;
    assert_eq!(of(&ended, "d").last(), Some(&("three", Status::NotRun)));
}

#[tokio::test]
async fn a_handler_runs_once_where_something_changed_and_nowhere_else() {
    let (result, ended) = play(
        "- hosts: all\n  tasks:\n    - { name: one, say: { change: \"{{ inventory_hostname == 'a' }}\" }, notify: again }\n    - { name: two, say: { change: \"{{ inventory_hostname == 'a' }}\" }, notify: again }\n  handlers:\n    - { name: again, say: {} }\n",
    )
    .await;
    assert_eq!(result, RunResult::Success);
    let handlers: Vec<_> = ended.iter().filter(|(_, task, _)| task == "again").collect();
    assert_eq!(handlers.len(), 1, "{ended:?}");
    assert_eq!(handlers[0].0, "a");
}

#[tokio::test]
async fn a_rescue_takes_over_and_what_always_runs_runs() {
    let (result, ended) = play(
        "- hosts: a\n  tasks:\n    - block:\n        - { name: one, say: { fail: true } }\n        - { name: two, say: {} }\n      rescue:\n        - { name: three, say: {} }\n      always:\n        - { name: four, say: {} }\n    - { name: five, say: {} }\n",
    )
    .await;
    assert_eq!(result, RunResult::Success);
    let expected = [
        ("one", Status::Rescued),
        ("two", Status::Skipped),
        ("three", Status::Ok),
        ("four", Status::Ok),
        ("five", Status::Ok),
    ];
    assert_eq!(of(&ended, "a"), expected);
}

#[tokio::test]
async fn nothing_starts_in_a_run_that_was_interrupted() {
    let (run, events) = run(&inventory(HOSTS), "- hosts: all\n  tasks:\n    - { name: one, say: {} }\n");
    run.interrupt.stop();
    assert_eq!(execute::run(run).await, RunResult::Interrupted);
    let started =
        events.into_iter().filter(|event| matches!(event.kind, EventKind::NodeFinished { status: Status::Ok, .. }));
    // What had a slot when it was noticed still ends.
    assert!(started.count() <= 4);
}

/// An exec has two tasks and runs the first. What the second waited for is known with its end at the earliest, or at the latest.
#[tokio::test]
async fn a_node_that_is_given_back_is_decided_about_once() {
    const PLAY: &str = "- hosts: all\n  tasks:\n    - command: { argv: ['true'] }\n    - command: { argv: ['true'] }\n";
    for is_heard_before in [true, false] {
        let mut scheduler = Scheduler::new(Arc::new(Context::new(run(&inventory("hosts: { h1: {} }\n"), PLAY).0)));
        scheduler.settle_ready();
        let (first, hosts) = scheduler.queue.pop_front().unwrap();
        let chain = scheduler.chain(first);
        let [_, second] = chain[..] else { panic!("{chain:?}") };
        scheduler.claim(second);
        let id = scheduler.running.spawn(async {}).id();
        let nodes = vec![(first, hosts.clone()), (second, hosts.clone())];
        scheduler.started.insert(id, Started { nodes, stop: CancellationToken::new() });
        assert!(scheduler.sender.send(Finished::new(first, hosts, Status::Ok)).is_ok());
        if is_heard_before {
            scheduler.hear_all();
            scheduler.settle_ready();
        }
        scheduler.ended(id, None);
        scheduler.settle_ready();
        let queued: Vec<_> = scheduler.queue.iter().map(|(index, _)| *index).collect();
        assert_eq!(queued, [second], "heard before: {is_heard_before}");
    }
}

/// Results of an exec come together. A handler that is flushed between two of its tasks knows nothing of the second.
#[tokio::test]
async fn what_is_notified_behind_a_flush_is_not_run_by_it() {
    const PLAY: &str = "- hosts: all\n  tasks:\n    - block:\n        - command: { argv: ['true'] }\n      rescue:\n        - { command: { argv: ['true'] }, notify: again }\n    - meta: flush_handlers\n    - { command: { argv: ['true'] }, notify: again }\n    - command: { argv: ['false'] }\n  handlers:\n    - { name: again, command: { argv: ['true'] } }\n";
    let mut scheduler = Scheduler::new(Arc::new(Context::new(run(&inventory("hosts: { h1: {} }\n"), PLAY).0)));
    scheduler.settle_ready();
    let (first, hosts) = scheduler.queue.pop_front().unwrap();
    let chain = scheduler.chain(first);
    let [_, second, third] = chain[..] else { panic!("{chain:?}") };
    [second, third].into_iter().for_each(|index| scheduler.claim(index));
    for (index, status) in [(first, Status::Changed), (second, Status::Changed), (third, Status::Failed)] {
        assert!(scheduler.sender.send(Finished::new(index, hosts.clone(), status)).is_ok());
    }
    scheduler.hear_all();
    scheduler.settle_ready();
    let graph = scheduler.context.graph.clone();
    let handlers: Vec<_> = graph.indices().filter(|index| graph.node(*index).kind == NodeKind::Handler).collect();
    assert_eq!(scheduler.fates[handlers[0].index()].map(|fate| fate.status), Some(Status::Skipped));
    assert!(scheduler.queue.is_empty(), "{:?}", scheduler.queue);
}

/// What a gate has seen before its process died says nothing of the world in which what is behind it runs.
#[tokio::test]
async fn a_gate_is_passed_again_in_front_of_what_is_not_done() {
    const PLAY: &str =
        "- hosts: all\n  tasks:\n    - { name: look, say: { perishable: true } }\n    - { name: act, say: {} }\n";
    let is_done = |ended: usize| {
        let folder = tempfile::tempdir().unwrap();
        let (mut run, _) = run(&inventory("hosts: { h1: {} }\n"), PLAY);
        let work: Vec<NodeIndex> = run.graph.work().collect();
        let settled = |index: &NodeIndex| {
            let node = u32::try_from(index.index()).unwrap();
            let key = NodeKey { graph: 0, node, id: "any".into() };
            let (status, seconds) = (Status::Ok, 0.0);
            let record = Record::Settled { key, status, changed: false, doubt: false, seconds, left: None };
            Line { at: 0, record }
        };
        let lines: Vec<Line> = work.iter().take(ended).map(settled).collect();
        run.recorder = Recorder::behind(folder.path(), &lines, &run.graph);
        Scheduler::new(Arc::new(Context::new(run))).is_done(work[0])
    };
    assert!(!is_done(0));
    assert!(!is_done(1), "the task behind it is still to come");
    assert!(is_done(2));
}
