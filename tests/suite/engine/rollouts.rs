//! Plays whose hosts take turns, over a real sshd.
use crate::support::engine::Bench;
use etcdrun::model::RunResult;

const TWO_TASKS: &str = r#"
- hosts: all
  rollout: { strategy: serial }
  tasks:
    - name: Enter
      shell: echo "in {{ inventory_hostname }}" >> DIR/log
    - name: Leave
      shell: echo "out {{ inventory_hostname }}" >> DIR/log
      notify: Say so
  handlers:
    - name: Say so
      shell: echo "handled {{ inventory_hostname }}" >> DIR/log
"#;

#[test]
fn one_host_is_through_before_the_next_begins() {
    let bench = Bench::new(3);
    assert_eq!(bench.run(TWO_TASKS).result, RunResult::Success);
    let turn = |host: &str| format!("in {host}\nout {host}\nhandled {host}\n");
    assert_eq!(bench.read("log"), turn("h1") + &turn("h2") + &turn("h3"), "handlers run inside the turn");
}

#[test]
fn a_failure_ends_the_rollout_and_leaves_the_others_alone() {
    let bench = Bench::new(3);
    let report = bench.run(
        r#"
- hosts: all
  rollout: { strategy: serial }
  tasks:
    - name: Enter
      shell: echo "{{ inventory_hostname }}" >> DIR/log
    - name: Fail
      command: "false"
      when: inventory_hostname == 'h2'
    - name: Leave
      command: "true"
"#,
    );
    assert_eq!(report.result, RunResult::Failed);
    assert_eq!(bench.read("log"), "h1\nh2\n");
    let left = report.sorted().into_iter().filter(|line| line.starts_with("not_run") && !line.contains("Wait before"));
    assert_eq!(
        left.collect::<Vec<_>>(),
        ["not_run h2 Leave", "not_run h3 Enter", "not_run h3 Fail", "not_run h3 Leave"]
    );
}

#[test]
fn what_failed_is_undone_before_the_rollout_ends() {
    let bench = Bench::new(2);
    let report = bench.run(
        r#"
- hosts: all
  rollout: { strategy: serial, on_failure: rollback }
  tasks:
    - name: Put
      copy: { content: "{{ 'old' if rollout.undo else 'new' }}\n", dest: "DIR/{{ inventory_hostname }}" }
    - name: Look
      assert: { that: rollout.undo }
"#,
    );
    assert_eq!(report.result, RunResult::Failed, "undone is not done");
    assert_eq!(bench.read("h1"), "old\n");
    assert!(!bench.path("h2").exists(), "nobody else begins");
}

#[test]
fn so_many_at_once_as_may_be_missing() {
    let bench = Bench::new(3);
    let report = bench.run(
        r#"
- hosts: all
  rollout: { strategy: serial, max_unavailable: 2 }
  tasks:
    - name: Meet
      # Two of them wait for each other; the third finds that they have met.
      shell: |
        touch DIR/{{ inventory_hostname }}
        for i in $(seq 100); do
          if [ "$(ls DIR/h* | wc -l)" -ge 2 ]; then exit 0; fi
          sleep 0.1
        done
        exit 1
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.sorted());
}

#[test]
fn a_strategy_of_the_user_says_who_is_next() {
    let bench = Bench::new(3);
    bench.write(
        "roles/rollout_mine/tasks/next.yaml",
        "- turn_order: { order: \"{{ ['h2'] + (ansible_play_hosts | difference(['h2']) | reverse | list) }}\" }\n  run_once: true\n  register: rollout_next\n",
    );
    let play = TWO_TASKS.replace("serial }", "mine }");
    assert_eq!(bench.run(&play).result, RunResult::Success);
    let turn = |host: &str| format!("in {host}\nout {host}\nhandled {host}\n");
    assert_eq!(bench.read("log"), turn("h2") + &turn("h3") + &turn("h1"));
}
