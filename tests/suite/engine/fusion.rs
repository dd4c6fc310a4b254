//! Tasks that share an exec: how many execs a play costs, and that each task is still its own.
use crate::support::{
    Sshd,
    engine::{Bench, Report},
    signal, wait_until,
};
use etcdrun::{
    execute::{Interrupt, RunOptions},
    model::{Event, EventKind, RunResult, Status},
};

/// Runs the tasks on one host; they must all succeed.
fn execs(bench: &Bench, tasks: &str) -> u64 {
    let report = bench.run(&format!("- hosts: h1\n  tasks:\n{tasks}"));
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    report.execs()
}

/// `start TASK` and `end TASK`, in the order of the events.
fn story(report: &Report, host: &str) -> Vec<String> {
    let tell = |event: &Event| match &event.kind {
        EventKind::NodeStarted { node } if node.host.as_str() == host => Some(format!("start {}", node.task)),
        EventKind::NodeFinished { node, .. } if node.host.as_str() == host => Some(format!("end {}", node.task)),
        _ => None,
    };
    report.events.iter().filter_map(tell).collect()
}

#[test]
fn ten_tasks_cost_one_exec_and_report_by_themselves() {
    let bench = Bench::new(3);
    let mut play = "- hosts: all\n  tasks:\n".to_owned();
    for n in 0..5 {
        play.push_str(&format!("    - {{ name: Say {n}, shell: 'echo out {n}; echo err {n} >&2' }}\n"));
        play.push_str(&format!(
            "    - {{ name: Copy {n}, copy: {{ content: '{n}', dest: 'DIR/{{{{ inventory_hostname }}}}-{n}' }} }}\n"
        ));
    }
    let report = bench.run_with(&play, RunOptions { diff: true, live_output: true, ..RunOptions::default() });
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    assert_eq!(report.execs(), 3, "one for each host");
    assert_eq!(report.count(Status::Changed), 30);
    let expected: Vec<_> = (0..5)
        .flat_map(|n| ["Say", "Copy"].map(|what| [format!("start {what} {n}"), format!("end {what} {n}")]))
        .flatten()
        .collect();
    for host in ["h1", "h2", "h3"] {
        assert_eq!(story(&report, host), expected);
        assert_eq!(bench.read(&format!("{host}-4")), "4");
    }
    for event in &report.events {
        match &event.kind {
            EventKind::NodeFinished { node, result, seconds, .. } => {
                assert!(*seconds > 0.0, "{}", node.task);
                let (what, n) = node.task.split_once(' ').unwrap();
                match what {
                    "Say" => {
                        assert_eq!((&*result.stdout, &*result.stderr), (&*format!("out {n}"), &*format!("err {n}")))
                    }
                    _ => assert_eq!(result.diff[0].after, n),
                }
            }
            EventKind::NodeOutput { node, text, .. } => {
                assert!(text.trim().ends_with(node.task.trim_start_matches("Say ")), "{}: {text}", node.task);
            }
            _ => {}
        }
    }
    assert_eq!(bench.run(&play).count(Status::Ok), 15, "a second run copies nothing");
}

#[test]
fn nothing_runs_after_a_failed_task() {
    let bench = Bench::new(2);
    let report = bench.run(
        r#"
- hosts: all
  vars: { log: "DIR/{{ inventory_hostname }}" }
  tasks:
    - { name: One, shell: "echo one >> {{ log }}" }
    - { name: Two, shell: "echo two >> {{ log }}; test {{ inventory_hostname }} != h2" }
    - { name: Three, shell: "echo three >> {{ log }}" }
    - { name: Four, copy: { content: x, dest: "{{ log }}.file" } }
"#,
    );
    assert_eq!(report.result, RunResult::Failed);
    assert_eq!(report.execs(), 2);
    assert_eq!(bench.read("h1"), "one\ntwo\nthree\n");
    assert_eq!(bench.read("h2"), "one\ntwo\n");
    let of_h2: Vec<_> = report.lines().into_iter().filter(|line| line.contains("h2")).collect();
    assert_eq!(of_h2, ["changed h2 One", "failed h2 Two", "not_run h2 Three", "not_run h2 Four"]);
    let because = |event: &Event| match &event.kind {
        EventKind::NodeFinished { node, because, .. } if &*node.task == "Four" => because.clone(),
        _ => None,
    };
    let because = report.events.iter().find_map(because);
    assert!(because.as_deref().is_some_and(|id| id.ends_with("h2/Two")), "{because:?}");
}

#[test]
fn what_needs_nothing_in_between_is_fused() {
    let bench = Bench::new(1);
    bench.write("files/src.txt", "from a file\n");
    let cases = [
        (
            "a skipped task",
            r#"
    - command: "true"
    - { name: Skipped, command: "false", when: inventory_hostname == 'nobody' }
    - command: "true"
"#,
        ),
        (
            "tasks that run on no host",
            r#"
    - command: "true"
    - debug: { msg: hello }
    - set_fact: { color: blue }
    - assert: { that: inventory_hostname == 'h1' }
    - command: "true"
"#,
        ),
        (
            "failures that do not count",
            r#"
    - { command: "false", ignore_errors: true }
    - { command: "false", failed_when: false }
    - { command: "true", changed_when: false }
    - { command: "true", register: unread }
    - command: "true"
"#,
        ),
        (
            "loops",
            r#"
    - { command: "echo {{ item }}", loop: [1, 2, 3], when: item != 2 }
    - { command: "true", loop: [] }
    - command: "true"
"#,
        ),
        (
            "blocks that do not fail",
            r#"
    - block:
        - command: "true"
      rescue:
        - command: "false"
      always:
        - debug: { msg: always }
"#,
        ),
        (
            "files, in another folder and environment, with a time-out",
            r#"
    - file: { path: DIR/made, state: directory }
    - { copy: { src: src.txt, dest: DIR/made/copied }, environment: { A: b } }
    - { shell: 'test "$PWD" = DIR/made', args: { chdir: DIR/made }, timeout: 60 }
    - { shell: 'test "${A-none}" = none && test "$PWD" != DIR/made' }
"#,
        ),
    ];
    for (what, tasks) in cases {
        assert_eq!(execs(&bench, tasks), 1, "{what}");
    }
}

#[test]
fn what_needs_the_operator_in_between_is_not() {
    let bench = Bench::new(1).inventory("  h9: { address: 127.0.1.9 }\n");
    bench.write("templates/read.j2", "{{ seen.stdout }}\n");
    bench.write("files/binary", "\0");
    bench.write("made", "stale\n");
    let cases = [
        (
            "a condition on a result",
            2,
            r#"
    - { shell: echo yes, register: seen }
    - { command: "true", when: seen.stdout == 'yes' }
"#,
        ),
        (
            "an argument",
            2,
            r#"
    - { shell: echo yes, register: seen }
    - command: test {{ seen.stdout }} = yes
    - { command: "true", loop: "{{ seen.stdout_lines }}" }
"#,
        ),
        (
            "a result by way of a variable",
            2,
            r#"
    - { shell: echo yes, register: seen }
    - { command: "test {{ indirect }} = yes", vars: { indirect: "{{ deeper }}", deeper: "{{ seen.stdout }}" } }
"#,
        ),
        (
            "a result by way of hostvars",
            2,
            r#"
    - { shell: echo yes, register: seen }
    - command: test {{ hostvars[inventory_hostname].seen.stdout }} = yes
"#,
        ),
        (
            "a result in a template file",
            2,
            r#"
    - { shell: echo yes, register: seen }
    - template: { src: read.j2, dest: DIR/rendered }
"#,
        ),
        (
            "whether there is a result",
            2,
            r#"
    - { shell: echo yes, register: seen }
    - { command: "true", when: seen is defined }
"#,
        ),
        (
            "a fact that is set",
            2,
            r#"
    - command: "true"
    - set_fact: { color: blue }
    - command: test {{ color }} = blue
"#,
        ),
        (
            "facts",
            2,
            r#"
    - command: test {{ facts.hostname }}
"#,
        ),
        (
            "a verdict",
            3,
            r#"
    - { command: "true", failed_when: result.rc != 0 }
    - { command: "true", changed_when: result.rc != 0 }
    - command: "true"
"#,
        ),
        (
            "attempts",
            3,
            r#"
    - command: "true"
    - { command: "true", until: result.rc == 0 }
    - command: "true"
"#,
        ),
        (
            "another user",
            3,
            r#"
    - command: "true"
    - { command: "true", become: true }
    - { command: "true", become: true }
    - command: "true"
"#,
        ),
        (
            "another target",
            3,
            r#"
    - command: "true"
    - { command: "true", delegate_to: h9 }
    - { command: "true", delegate_to: h9 }
    - command: "true"
"#,
        ),
        (
            "a limit on hosts at once",
            3,
            r#"
    - command: "true"
    - { command: "true", throttle: 1 }
    - command: "true"
"#,
        ),
        (
            "a file that a command on this machine makes",
            2,
            r#"
    - shell: echo made > DIR/made
    - copy: { src: DIR/made, dest: DIR/copied }
"#,
        ),
    ];
    for (what, expected, tasks) in cases {
        assert_eq!(execs(&bench, tasks), expected, "{what}");
    }
    assert_eq!(bench.read("rendered"), "yes\n");
    assert_eq!(bench.read("copied"), "made\n");
    // The upload of what is no text asks, uploads, and places.
    let tasks = "    - command: 'true'\n    - copy: { src: binary, dest: DIR/binary }\n    - command: 'true'\n";
    let report = bench.run(&format!("- hosts: h1\n  tasks:\n{tasks}"));
    assert_eq!(report.execs(), 5, "{:#?}", report.lines());
    assert_eq!(bench.read("binary"), "\0");
}

#[test]
fn commands_that_detach_or_disrupt_go_alone() {
    let bench = Bench::new(1);
    let report = bench.run(
        "- hosts: h1\n  tasks:\n    - { name: A, command: 'true' }\n    - { name: B, command: 'true', async: 9, poll: 0 }\n    - { name: C, command: 'true' }\n",
    );
    assert_eq!((report.result, report.execs()), (RunResult::Success, 3));
    // Whether the unit exists does not matter here: what follows it must not have been sent with it.
    let report = bench.run(
        "- hosts: h1\n  tasks:\n    - { name: A, command: 'true' }\n    - { name: B, service: { name: no-such-unit, state: restarted }, ignore_errors: true }\n    - { name: C, command: 'true' }\n",
    );
    assert_eq!((report.result, report.execs()), (RunResult::Success, 3));
}

#[test]
fn handlers_wait_for_what_notifies_them_and_break_nothing_otherwise() {
    let bench = Bench::new(1);
    let play = r#"
- hosts: h1
  pre_tasks:
    - { name: Before, command: "true" }
  tasks:
    - { name: Write, copy: { content: x, dest: DIR/file }, notify: [One, Two] }
    - { name: After, command: "true" }
  post_tasks:
    - { name: Last, command: "true" }
  handlers:
    - { name: One, shell: echo one >> DIR/log }
    - { name: Two, shell: echo two >> DIR/log }
"#;
    let report = bench.run(play);
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    let tasks = ["Before", "Write", "After", "One", "Two", "Last"].map(|task| format!("changed h1 {task}"));
    assert_eq!(report.lines(), tasks);
    assert_eq!(report.execs(), 2, "one for the tasks, one for the handlers and what is behind them");
    assert_eq!(bench.read("log"), "one\ntwo\n");
    let report = bench.run(play);
    assert_eq!(report.lines(), ["changed h1 Before", "ok h1 Write", "changed h1 After", "changed h1 Last"]);
    assert_eq!(bench.read("log"), "one\ntwo\n");
}

#[test]
fn a_handler_that_was_handed_back_is_still_notified() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: h1
  tasks:
    - { name: Change, command: "true", notify: [One, Two] }
  handlers:
    - { name: One, shell: echo one >> DIR/log; echo yes, register: one }
    - { name: Two, shell: "echo {{ one.stdout }} >> DIR/log" }
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    assert_eq!(bench.read("log"), "one\nyes\n");
}

#[test]
fn an_item_that_fails_stops_what_is_behind_its_loop() {
    let bench = Bench::new(1);
    let play = |ignore: bool| {
        format!(
            r#"
- hosts: h1
  tasks:
    - name: Items
      shell: "echo {{{{ item }}}} >> DIR/log; test {{{{ item }}}} != 2"
      loop: [1, 2, 3]
      ignore_errors: {ignore}
      register: items
    - {{ name: Behind, shell: echo behind >> DIR/log }}
    - {{ name: Look, assert: {{ that: [items.failed, items.results | length == 3, "items.results[1].rc == 1", "items.results[2].item == 3"] }} }}
"#
        )
    };
    let report = bench.run(&play(false));
    assert_eq!(report.lines(), ["failed h1 Items", "not_run h1 Behind", "not_run h1 Look"]);
    assert_eq!(bench.read("log"), "1\n2\n3\n");
    assert_eq!(report.execs(), 1);
    let report = bench.run(&play(true));
    assert_eq!(report.lines(), ["ignored h1 Items", "changed h1 Behind", "ok h1 Look"]);
    assert_eq!(bench.read("log"), "1\n2\n3\n1\n2\n3\nbehind\n");
    assert_eq!(report.execs(), 1);
}

#[test]
fn a_rescue_takes_over_in_the_middle_of_a_segment() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: h1
  tasks:
    - { name: Before, command: "true" }
    - block:
        - { name: Body, command: "false" }
        - { name: Rest, command: "true" }
      rescue:
        - { name: Rescue, command: "true" }
      always:
        - { name: Always, command: "true" }
    - { name: After, command: "true" }
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    let lines = report.lines();
    for line in ["changed h1 Before", "rescued h1 Body", "changed h1 Rescue", "changed h1 Always", "changed h1 After"] {
        assert!(lines.contains(&line.to_owned()), "{line}: {lines:#?}");
    }
    assert!(!lines.iter().any(|line| line == "changed h1 Rest"), "{lines:#?}");
}

#[test]
fn a_result_releases_other_hosts_before_the_segment_ends() {
    let bench = Bench::new(2);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - { name: First, command: "true", when: inventory_hostname == 'h1' }
    - name: Wait for h2
      shell: until [ -e DIR/go ]; do sleep 0.05; done
      timeout: 30
      when: inventory_hostname == 'h1'
    - name: Go
      file: { path: DIR/go, state: touch }
      needs: { task: First, hosts: h1 }
      when: inventory_hostname == 'h2'
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    assert_eq!(report.execs(), 2);
}

#[test]
fn a_connection_cut_in_the_middle_leaves_what_ended_ended() {
    let bench = Bench::new(1);
    let play = r#"
- hosts: all
  tasks:
    - { name: Before, shell: "echo before >> DIR/log", register: before }
    - { name: Under way, shell: "echo under way >> DIR/log; sleep 3333" }
    - { name: Behind, shell: "echo behind >> DIR/log" }
"#;
    let mut cut = false;
    let report = bench.run_until(play, RunOptions::default(), &Interrupt::default(), |event| {
        let is_it = |kind: &EventKind| matches!(kind, EventKind::NodeStarted { node } if &*node.task == "Under way");
        if is_it(&event.kind) && !std::mem::replace(&mut cut, true) {
            wait_until(|| bench.read("log").contains("under way"));
            for pid in bench.sshd.sessions() {
                signal(pid, rustix::process::Signal::KILL);
            }
        }
    });
    assert_eq!(report.result, RunResult::Unreachable);
    assert_eq!(report.lines(), ["changed h1 Before", "unreachable h1 Under way", "not_run h1 Behind"]);
    assert_eq!(bench.read("log"), "before\nunder way\n");
}

#[test]
fn a_task_over_its_time_ends_alone_among_others() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - { name: Before, command: "true" }
    - { name: Slow, command: sleep 3444, timeout: 1, ignore_errors: true }
    - { name: Behind, command: "true" }
"#,
    );
    assert_eq!(report.lines(), ["changed h1 Before", "ignored h1 Slow", "changed h1 Behind"]);
    assert!(report.message("Slow").contains("timed out"), "{}", report.message("Slow"));
}

#[test]
fn a_play_that_is_given_up_starts_nothing_more_anywhere() {
    let bench = Bench::on(Sshd::with_own_tmp(), 2);
    let play = r#"
- hosts: all
  any_errors_fatal: true
  tasks:
    - { name: Fail, command: "false", when: inventory_hostname == 'h1', needs: [] }
    - { name: Under way, shell: "touch DIR/begun; until [ -e DIR/go ]; do sleep 0.05; done" }
    - { name: Behind, shell: "touch DIR/behind" }
"#;
    // h1 must not fail before h2 is under way.
    let play = play.replace(r#"command: "false""#, r#"shell: "until [ -e DIR/begun ]; do sleep 0.05; done; false""#);
    let report = bench.run_until(&play, RunOptions::default(), &Interrupt::default(), |event| {
        if matches!(&event.kind, EventKind::NodeFinished { status: Status::Failed, .. }) {
            wait_until(|| bench.sshd.stop_requests() == 1);
            bench.write("go", "");
        }
    });
    assert_eq!(report.result, RunResult::Failed);
    let expected = [
        "changed h2 Under way",
        "failed h1 Fail",
        "not_run h1 Behind",
        "not_run h1 Under way",
        "not_run h2 Behind",
        "skipped h2 Fail",
    ];
    assert_eq!(report.sorted(), expected);
    assert!(!bench.path("behind").exists());
    wait_until(|| bench.sshd.stop_requests() == 0);
}

#[test]
fn a_task_that_cannot_be_sent_fails_in_its_turn() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - { name: Before, shell: "echo before >> DIR/log" }
    - { name: Broken, command: "echo {{ 'x' | int('y') + [] }}", ignore_errors: true }
    - { name: Nul, command: { argv: [echo, "\0"] } }
    - { name: Behind, shell: "echo behind >> DIR/log" }
"#,
    );
    assert_eq!(report.lines(), ["changed h1 Before", "ignored h1 Broken", "failed h1 Nul", "not_run h1 Behind"]);
    assert_eq!((bench.read("log").as_str(), report.execs()), ("before\n", 1));
    assert!(report.message("Nul").contains("NUL byte"), "{}", report.message("Nul"));
}

/// The exec in which the block failed still has `After` when the rescue starts; the rescue must not take it along.
#[test]
fn what_a_failed_exec_has_not_run_is_run_once() {
    let bench = Bench::new(8);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - block:
        - { name: Breaks, command: "false" }
      rescue:
        - { name: Mend, command: "true" }
    - { name: After, shell: "echo x >>DIR/{{ inventory_hostname }}" }
    - { name: Last, command: "true" }
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    for n in 1..=8 {
        assert_eq!(bench.read(&format!("h{n}")), "x\n");
        assert_eq!(story(&report, &format!("h{n}")).iter().filter(|line| *line == "start After").count(), 1);
    }
}
