//! What a run does when things go wrong, over a real sshd.
use std::time::{Duration, Instant};

use crate::support::{Sshd, engine::Bench, signal, wait_until};
use etcdrun::{
    execute::{Interrupt, RunOptions},
    model::{EventKind, RunResult, Status},
};

#[test]
fn an_unreachable_host_in_the_middle_of_a_batch() {
    // Nothing listens on the port of h2.
    let bench = Bench::new(1).inventory(
        "  h2: { address: 127.0.1.2, port: 1 }\n  h3: { address: 127.0.1.3 }\n  h4: { address: 127.0.1.4 }\n",
    );
    let report = bench.run(
        r#"
- hosts: all
  serial: 2
  tasks:
    - { name: Touch, command: "true" }
    - { name: After, command: "true" }
"#,
    );
    assert_eq!(report.result, RunResult::Unreachable);
    assert_eq!(
        report.sorted(),
        [
            "changed h1 After",
            "changed h1 Touch",
            "changed h3 After",
            "changed h3 Touch",
            "changed h4 After",
            "changed h4 Touch",
            "not_run h2 After",
            "unreachable h2 Touch"
        ]
    );
}

#[test]
fn a_connection_killed_in_mid_task_is_unreachable_and_soon() {
    let bench = Bench::new(2);
    let started = Instant::now();
    let play = r#"
- hosts: all
  tasks:
    - { name: Long, command: "sleep 3111" }
    - { name: After, command: "true" }
"#;
    let mut begun = 0;
    let report = bench.run_until(play, RunOptions::default(), &Interrupt::default(), |event| {
        begun += usize::from(matches!(event.kind, EventKind::NodeStarted { .. }));
        if begun == 2 {
            begun += 1;
            wait_until(|| sleepers("3111") == 2);
            for pid in bench.sshd.sessions() {
                signal(pid, rustix::process::Signal::KILL);
            }
        }
    });
    assert_eq!(report.result, RunResult::Unreachable, "{:#?}", report.lines());
    assert_eq!(report.count(Status::Unreachable), 2);
    assert_eq!(report.count(Status::NotRun), 2);
    assert!(started.elapsed() < Duration::from_secs(60));
}

#[test]
fn the_first_interrupt_lets_running_nodes_end() {
    let bench = Bench::on(Sshd::with_own_tmp(), 2);
    let play = r#"
- hosts: all
  vars: { log: "DIR/{{ inventory_hostname }}" }
  tasks:
    - { name: Running, shell: "echo begun >> {{ log }}; until [ -e DIR/go ]; do sleep 0.05; done; echo ended >> {{ log }}" }
    - { name: Next, command: "true" }
"#;
    let interrupt = Interrupt::default();
    let report = bench.run_until(play, RunOptions::default(), &interrupt, |event| match event.kind {
        EventKind::NodeStarted { .. } => {
            wait_until(|| bench.path("h1").exists() && bench.path("h2").exists());
            interrupt.stop();
        }
        EventKind::Interrupted => {
            wait_until(|| bench.sshd.stop_requests() == 2);
            bench.write("go", "");
        }
        _ => {}
    });
    assert_eq!(report.result, RunResult::Interrupted);
    assert_eq!(bench.read("h1"), "begun\nended\n");
    assert_eq!(bench.read("h2"), "begun\nended\n");
    assert_eq!(report.sorted(), ["changed h1 Running", "changed h2 Running", "not_run h1 Next", "not_run h2 Next"]);
}

#[test]
fn two_hundred_hosts_at_once() {
    let bench = Bench::new(200);
    let play = r#"
- hosts: all
  tasks:
    - { name: Mark, shell: "echo {{ inventory_hostname }} > DIR/{{ inventory_hostname }}" }
    - { name: Read, command: "cat DIR/{{ inventory_hostname }}", register: seen, changed_when: false }
    - { name: Compare, assert: { that: seen.stdout == inventory_hostname } }
"#;
    let report = bench.run_with(play, RunOptions { forks: 200, ..RunOptions::default() });
    assert_eq!(
        report.result,
        RunResult::Success,
        "{:#?}",
        report.lines().iter().filter(|l| !l.starts_with("ok")).collect::<Vec<_>>()
    );
    assert_eq!(report.count(Status::Changed), 200);
    assert_eq!(report.count(Status::Ok), 400);
}

#[test]
fn limits_are_kept() {
    let bench = Bench::new(6);
    let play = r#"
- hosts: all
  tasks:
    - name: Overlap
      shell: "echo + >> DIR/log; sleep 0.2; echo - >> DIR/log"
      throttle: 2
"#;
    let report = bench.run(play);
    assert_eq!(report.result, RunResult::Success);
    let mut deepest = 0;
    let mut depth = 0;
    for line in bench.read("log").lines() {
        depth += if line == "+" { 1 } else { -1 };
        deepest = deepest.max(depth);
    }
    assert!(deepest <= 2, "{deepest} at once");
}

#[test]
fn a_command_over_its_time_fails_and_leaves_nothing_running() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - { name: Slow, command: "sleep 3222", timeout: 1 }
"#,
    );
    assert_eq!(report.result, RunResult::Failed, "{:#?}", report.events);
    assert!(report.message("Slow").contains("timed out"), "{}", report.message("Slow"));
    wait_until(|| sleepers("3222") == 0);
}

#[test]
fn a_detached_command_is_polled_until_it_ends() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - name: Detached
      shell: sleep 1; echo out; echo err >&2
      async: 30
      poll: 1
      register: job
    - name: Check
      assert: { that: [job.stdout == 'out', job.stderr == 'err', job.rc == 0, job.finished] }
    - name: Fire and forget
      shell: sleep 0.2; echo done > DIR/later
      async: 30
      poll: 0
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    wait_until(|| bench.path("later").exists());
}

#[test]
fn work_is_delegated_and_shared() {
    let bench = Bench::new(1).inventory(
        "hypervisors:\n  hv1: { address: 127.0.1.11 }\n  hv2: { address: 127.0.1.12 }\nclusters:\n  prod:\n    members:\n      \
         etcd-1: { hypervisor: hv1, address: 127.0.1.21 }\n      etcd-2: { hypervisor: hv1, address: 127.0.1.22 }\n      \
         etcd-3: { hypervisor: hv2, address: 127.0.1.23 }\n",
    );
    let play = r#"
- hosts: prod
  tasks:
    - name: Per hypervisor
      shell: echo {{ hypervisor.name }} >> DIR/shared; echo $SSH_CONNECTION
      once_per: hypervisor
      register: shared
    - name: Per hypervisor, each item
      shell: echo {{ hypervisor.name }} {{ item }} >> DIR/items
      loop: [a, b]
      once_per: hypervisor
    - name: On the hypervisor
      shell: echo $SSH_CONNECTION
      on: hypervisor
      register: own
    - name: On another host
      shell: echo $SSH_CONNECTION
      delegate_to: h1
      register: other
    - name: Here
      shell: echo "${SSH_CONNECTION:-none}"
      delegate_to: localhost
      environment: { SSH_CONNECTION: "" }
      register: here
    - name: Check
      assert:
        that:
          - hypervisor.address in shared.stdout
          - hypervisor.address in own.stdout
          - "'127.0.1.1 ' in other.stdout"
          - here.stdout == 'none'
"#;
    let report = bench.run(play);
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    let mut shared: Vec<_> = bench.read("shared").lines().map(str::to_owned).collect();
    shared.sort();
    assert_eq!(shared, ["hv1", "hv2"]);
    assert_eq!(bench.read("items").lines().count(), 4, "{}", bench.read("items"));
    let differing = r#"
- hosts: prod
  tasks:
    - name: Differs
      command: echo {{ inventory_hostname }}
      once_per: hypervisor
"#;
    let report = bench.run(differing);
    assert_eq!(report.result, RunResult::Failed);
    assert!(report.message("Differs").contains("differs between them"), "{}", report.message("Differs"));
}

#[test]
fn check_mode_changes_nothing_and_no_log_hides() {
    let bench = Bench::new(1);
    let play = r#"
- hosts: all
  tasks:
    - { name: Write, copy: { content: "x\n", dest: DIR/file }, notify: Handler }
    - { name: Raw, command: touch DIR/raw }
    - { name: Look, command: "true", check_mode: false }
    - { name: Hidden, shell: "echo s3cret", no_log: true, check_mode: false }
  handlers:
    - { name: Handler, file: { path: DIR/handled, state: touch } }
"#;
    let report = bench.run_with(play, RunOptions { check_mode: true, diff: true, ..RunOptions::default() });
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    assert!(report.lines().contains(&"changed h1 Write".to_owned()));
    assert!(report.lines().contains(&"changed h1 Handler".to_owned()));
    for name in ["file", "raw", "handled"] {
        assert!(!bench.path(name).exists(), "{name} was made in check mode");
    }
    let text = serde_json::to_string(&report.events).unwrap();
    assert!(!text.contains("s3cret"), "no_log leaks");
    assert!(text.contains("\"diff\""), "a prediction shows its diff");
}

/// How many processes sleep for just that long; each test has a number of its own.
fn sleepers(seconds: &str) -> usize {
    let wanted = format!("sleep\0{seconds}\0");
    let is_it = |pid: &str| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line == wanted);
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.filter(|entry| is_it(&entry.file_name().to_string_lossy())).count()
}

#[test]
fn a_rescue_of_several_tasks_stays_shut_where_nothing_failed() {
    let bench = Bench::new(2);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - block:
        - { name: Body, command: "test {{ inventory_hostname }} != h2" }
      rescue:
        - { name: One, shell: "echo one >> DIR/{{ inventory_hostname }}" }
        - { name: Two, shell: "echo two >> DIR/{{ inventory_hostname }}" }
        - block:
            - { name: Three, shell: "echo three >> DIR/{{ inventory_hostname }}" }
          always:
            - { name: Four, shell: "echo four >> DIR/{{ inventory_hostname }}" }
    - { name: After, command: "true" }
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.lines());
    assert!(!bench.path("h1").exists(), "a rescue ran on a healthy host");
    assert_eq!(bench.read("h2"), "one\ntwo\nthree\nfour\n");
}

#[test]
fn always_runs_when_the_play_is_given_up_but_not_where_nobody_answers() {
    let bench = Bench::new(2).inventory("  dead: { address: 127.0.1.9, port: 1 }\n");
    let report = bench.run(
        r#"
- hosts: all
  any_errors_fatal: true
  tasks:
    - block:
        - { name: Body, command: "test {{ inventory_hostname }} != h1" }
        - { name: Wait, command: "true", needs: Body }
      always:
        - { name: Tidy, debug: { msg: tidy } }
    - block:
        - { name: Next, command: "true" }
      always:
        - { name: Never, debug: { msg: never } }
"#,
    );
    let lines = report.sorted();
    assert!(lines.contains(&"ok h1 Tidy".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"not_run dead Tidy".to_owned()), "{lines:#?}");
    assert!(lines.iter().filter(|line| line.ends_with("Never")).all(|line| line.starts_with("not_run")), "{lines:#?}");
}

#[test]
fn retries_alone_repeat_until_the_task_succeeds() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - name: Third time
      shell: echo x >> DIR/count; test $(wc -l < DIR/count) -ge 3
      retries: 5
      delay: 0
      register: done
    - { name: Check, assert: { that: done.attempts == 3 } }
    - name: Each its own job
      shell: "sleep 0.1; echo {{ item }} > DIR/job{{ item }}"
      loop: [1, 2]
      async: 30
      poll: 0
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    wait_until(|| bench.path("job1").exists() && bench.path("job2").exists());
}

#[test]
fn an_interrupt_ends_retries_and_loops() {
    let bench = Bench::new(2);
    let play = r#"
- hosts: all
  tasks:
    - { name: Retry, command: "false", retries: 100, delay: 60, when: inventory_hostname == 'h1' }
    - { name: Items, shell: "echo {{ item }} >> DIR/items", loop: [1, 2, 3], loop_control: { pause: 60 }, when: inventory_hostname == 'h2' }
"#;
    let started = Instant::now();
    let interrupt = Interrupt::default();
    let (mut retried, mut item) = (false, false);
    let report = bench.run_until(play, RunOptions::default(), &interrupt, |event| {
        retried |= matches!(event.kind, EventKind::NodeRetry { .. });
        item |= matches!(event.kind, EventKind::ItemFinished { .. }) && bench.path("items").exists();
        if retried && item {
            interrupt.stop();
        }
    });
    assert_eq!(report.result, RunResult::Interrupted);
    assert_eq!(bench.read("items"), "1\n");
    assert!(started.elapsed() < Duration::from_secs(50));
}

#[test]
fn a_flood_of_live_output_does_not_outlive_its_command() {
    let bench = Bench::new(1);
    let play = "- hosts: all\n  tasks:\n    - { name: Flood, shell: 'head -c 200000000 /dev/zero | tr \"\\\\0\" x', no_log: false }\n";
    let report = bench.run_with(play, RunOptions { live_output: true, ..RunOptions::default() });
    assert_eq!(report.result, RunResult::Success, "{:?}", report.lines());
    let live = |event: &etcdrun::model::Event| match &event.kind {
        EventKind::NodeOutput { text, .. } => text.len(),
        _ => 0,
    };
    let shown: usize = report.events.iter().map(live).sum();
    assert!(shown < 2_000_000, "{shown} bytes were queued");
}
