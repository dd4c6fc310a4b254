//! Plays over a real sshd: order, conditions, loops, results, handlers.
use crate::support::engine::Bench;
use etcdrun::{
    compile::Selection,
    model::{RunResult, Status},
};

#[test]
fn three_hosts_copy_and_command() {
    let bench = Bench::new(3);
    let play = r#"
- name: First
  hosts: all
  vars: { greeting: hello }
  tasks:
    - name: Write
      copy: { content: "{{ greeting }} {{ inventory_hostname }}\n", dest: "DIR/{{ inventory_hostname }}.txt" }
    - name: Read
      command: cat DIR/{{ inventory_hostname }}.txt
      register: seen
      changed_when: false
    - name: Compare
      assert: { that: seen.stdout == greeting ~ ' ' ~ inventory_hostname }
"#;
    let report = bench.run(play);
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    assert_eq!(
        report.sorted(),
        [
            "changed h1 Write",
            "changed h2 Write",
            "changed h3 Write",
            "ok h1 Compare",
            "ok h1 Read",
            "ok h2 Compare",
            "ok h2 Read",
            "ok h3 Compare",
            "ok h3 Read"
        ]
    );
    assert_eq!(bench.read("h2.txt"), "hello h2\n");
    assert_eq!(bench.run(play).count(Status::Changed), 0, "a second run changes nothing");
}

#[test]
fn when_loop_and_register() {
    let bench = Bench::new(2);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - name: Only first
      command: "true"
      when: inventory_hostname == 'h1'
    - name: Each
      command: echo {{ item }}-{{ index }}
      loop: [a, b, c]
      loop_control: { index_var: index }
      when: item != 'b'
      register: each
    - name: Check
      assert:
        that:
          - each.results | length == 3
          - each.results[0].stdout == 'a-0'
          - each.results[1].skipped
          - each.results | map(attribute='item') | list == ['a', 'b', 'c']
    - name: Nothing to do
      command: "true"
      loop: []
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    assert_eq!(report.count(Status::Skipped), 1);
    assert!(report.sorted().contains(&"skipped h2 Only first".to_owned()));
}

#[test]
fn a_failed_host_stops_and_the_others_go_on() {
    let bench = Bench::new(3);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - name: Fails on h2
      command: test {{ inventory_hostname }} != h2
    - name: After
      command: "true"
- hosts: all
  tasks:
    - name: Later
      command: "true"
"#,
    );
    assert_eq!(report.result, RunResult::Failed);
    let lines = report.sorted();
    assert!(lines.contains(&"failed h2 Fails on h2".to_owned()), "{lines:#?}");
    assert!(lines.contains(&"not_run h2 After".to_owned()));
    assert!(lines.contains(&"not_run h2 Later".to_owned()));
    assert!(lines.contains(&"changed h1 Later".to_owned()));
    assert!(lines.contains(&"changed h3 Later".to_owned()));
}

#[test]
fn handlers_run_once_and_only_if_something_changed() {
    let bench = Bench::new(2);
    let play = r#"
- hosts: all
  tasks:
    - name: One
      copy: { content: x, dest: "DIR/{{ inventory_hostname }}.one" }
      notify: Restart
    - name: Two
      copy: { content: y, dest: "DIR/{{ inventory_hostname }}.two" }
      notify: [Restart, everything]
    - name: Last task
      command: "true"
  handlers:
    - name: Restart
      shell: echo restarted >> DIR/{{ inventory_hostname }}.log
      notify: Chained
    - name: Unused
      fail: { msg: nobody asked for this }
    - name: Listener
      shell: echo listened >> DIR/{{ inventory_hostname }}.log
      listen: everything
    - name: Chained
      shell: echo chained >> DIR/{{ inventory_hostname }}.log
"#;
    let report = bench.run(play);
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.lines());
    assert_eq!(bench.read("h1.log"), "restarted\nlistened\nchained\n");
    bench.run(play);
    assert_eq!(bench.read("h1.log"), "restarted\nlistened\nchained\n", "nothing changed, nothing notified");
}

#[test]
fn handlers_flush_on_demand_and_after_a_failure_elsewhere() {
    let bench = Bench::new(2);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - name: Change
      command: "true"
      notify: Log
    - meta: flush_handlers
    - name: Middle
      shell: echo middle >> DIR/{{ inventory_hostname }}.log
      notify: Log
    - name: Fails on h2
      command: test {{ inventory_hostname }} != h2
  handlers:
    - name: Log
      shell: echo handler >> DIR/{{ inventory_hostname }}.log
"#,
    );
    assert_eq!(report.result, RunResult::Failed);
    assert_eq!(bench.read("h1.log"), "handler\nmiddle\nhandler\n");
    assert_eq!(bench.read("h2.log"), "handler\nmiddle\n");
}

#[test]
fn a_handler_that_was_flushed_does_not_run_again() {
    let bench = Bench::new(2);
    bench.run(
        r#"
- hosts: all
  tasks:
    - block:
        - { name: Task 1, shell: 'echo 1 >>DIR/{{ inventory_hostname }}' }
      always:
        - block:
            - { name: Task 2, shell: 'echo 2 >>DIR/{{ inventory_hostname }}; test {{ inventory_hostname }} != h2', notify: Second }
    - { name: Task 3, shell: 'echo 3{{ "" if last is defined else "" }} >>DIR/{{ inventory_hostname }}', register: last }
    - meta: flush_handlers
    - block:
        - { name: Task 4, shell: 'echo 4 >>DIR/{{ inventory_hostname }}; test {{ inventory_hostname }} != h2' }
      rescue:
        - { name: Task 5, shell: 'echo 5 >>DIR/{{ inventory_hostname }}', notify: First }
  handlers:
    - { name: First, shell: 'echo First >>DIR/{{ inventory_hostname }}', notify: Second }
    - { name: Second, shell: 'echo Second >>DIR/{{ inventory_hostname }}' }
"#,
    );
    assert_eq!(bench.read("h1"), "1\n2\n3\nSecond\n4\n");
}

#[test]
fn blocks_rescue_and_always() {
    let bench = Bench::new(2);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - block:
        - name: Fails on h2
          command: test {{ inventory_hostname }} != h2
        - name: Rest of the block
          command: "true"
      rescue:
        - name: Mend
          command: "true"
      always:
        - name: Tidy
          command: "true"
    - name: After
      command: "true"
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.lines());
    assert_eq!(
        report.sorted(),
        [
            "changed h1 After",
            "changed h1 Fails on h2",
            "changed h1 Rest of the block",
            "changed h1 Tidy",
            "changed h2 After",
            "changed h2 Mend",
            "changed h2 Tidy",
            "rescued h2 Fails on h2",
            "skipped h2 Rest of the block"
        ]
    );
}

#[test]
fn names_of_tasks_are_rendered_and_a_rescue_knows_what_failed() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  vars: { what: disks }
  tasks:
    - block:
        - name: Look at {{ what }} of {{ inventory_hostname }}
          command: sh -c "exit 7"
      rescue:
        - name: "{{ ansible_failed_task.name }} ended with {{ ansible_failed_result.rc }}"
          command: "true"
    - name: Each {{ item }}
      command: "true"
      loop: [1]
"#,
    );
    assert_eq!(
        report.lines(),
        ["rescued h1 Look at disks of h1", "changed h1 Look at disks of h1 ended with 7", "changed h1 Each {{ item }}"]
    );
}

#[test]
fn a_rescue_that_fails_still_runs_always_and_fails_the_host() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - block:
        - { name: Breaks, command: "false" }
      rescue:
        - { name: Breaks too, command: "false" }
      always:
        - { name: Tidy, command: "true" }
    - { name: After, command: "true" }
"#,
    );
    assert_eq!(report.result, RunResult::Failed);
    assert_eq!(report.lines(), ["rescued h1 Breaks", "failed h1 Breaks too", "changed h1 Tidy", "not_run h1 After"]);
}

#[test]
fn until_retries_and_judgement() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - name: Third time
      shell: echo x >> DIR/count; wc -l < DIR/count
      register: count
      until: count.stdout | trim == '3'
      retries: 5
      delay: 0
    - name: Attempts
      assert: { that: count.attempts == 3 }
    - name: Never
      command: "true"
      register: never
      until: never.stdout == 'x'
      retries: 1
      delay: 0
      ignore_errors: true
    - name: Bad exit is fine
      command: sh -c 'exit 3'
      register: code
      failed_when: code.rc not in [0, 3]
      changed_when: false
    - name: Good exit is not
      command: echo trouble
      register: text
      failed_when: "'trouble' in text.stdout"
"#,
    );
    assert_eq!(report.result, RunResult::Failed);
    assert_eq!(
        report.lines(),
        [
            "changed h1 Third time",
            "ok h1 Attempts",
            "ignored h1 Never",
            "ok h1 Bad exit is fine",
            "failed h1 Good exit is not"
        ],
        "{:#?}",
        report.events
    );
}

#[test]
fn serial_batches_follow_each_other_and_stop_when_too_many_fail() {
    let bench = Bench::new(4);
    let report = bench.run(
        r#"
- hosts: all
  serial: 2
  max_fail_percentage: 0
  tasks:
    - name: Step
      shell: echo {{ inventory_hostname }} >> DIR/order; test {{ inventory_hostname }} != h2
"#,
    );
    assert_eq!(report.result, RunResult::Failed);
    let mut order: Vec<_> = bench.read("order").lines().map(str::to_owned).collect();
    order.sort();
    assert_eq!(order, ["h1", "h2"]);
    assert_eq!(report.count(Status::NotRun), 2);
}

#[test]
fn run_once_shares_its_result_and_facts_are_set_per_host() {
    let bench = Bench::new(3);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - name: Once
      shell: echo {{ inventory_hostname }} >> DIR/once; echo token
      run_once: true
      register: token
    - name: Set
      set_fact: { mine: "{{ token.stdout }}-{{ inventory_hostname }}" }
    - name: Check
      assert: { that: mine == 'token-' ~ inventory_hostname }
- hosts: h3
  tasks:
    - name: See others
      assert: { that: "hostvars['h1'].mine == 'token-h1'" }
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    assert_eq!(bench.read("once"), "h1\n");
}

#[test]
fn any_error_is_fatal_if_the_play_says_so() {
    let bench = Bench::new(3);
    let report = bench.run(
        r#"
- hosts: all
  any_errors_fatal: true
  tasks:
    - name: Fails on h1
      command: test {{ inventory_hostname }} != h1
    - name: Waits for h1
      command: "true"
      needs: Fails on h1
- hosts: all
  tasks:
    - name: Never
      command: "true"
"#,
    );
    assert_eq!(report.result, RunResult::Failed);
    assert_eq!(report.lines().iter().filter(|line| line.ends_with("Never") && line.starts_with("not_run")).count(), 3);
}

#[test]
fn facts_are_gathered_where_they_are_read() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - name: Read
      assert: { that: [facts.os.family is string, facts.uid is number] }
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    assert_eq!(report.lines(), ["ok h1 Gather facts", "ok h1 Read"]);
}

#[test]
fn undefined_names_are_found_before_anything_runs() {
    let bench = Bench::new(2).inventory("groups:\n  web: { hosts: [h1], vars: { port: 80 } }\n");
    let play = r#"
- hosts: all
  vars: { base: "{{ bose }}/x" }
  tasks:
    - command: echo {{ port }}
    - command: echo {{ nothing | default('x') }} {{ base }}
    - command: "true"
      when: inventory_hostname == 'h2' and prot == 1
    - command: echo hi
      register: r
    - command: echo {{ r.stdot }}
      when: r is defined
    - command: echo {{ later.stdout }}
    - command: echo {{ facts.os.nmae }}
    - command: "true"
      register: later
"#;
    let errors = bench.load(play, Selection::default()).err().unwrap();
    insta::assert_snapshot!(errors.join("\n"), @r"
    play.yaml:5:24: `port` is not defined for h2 (define it in the inventory, the play's `vars`, or with `-e`; or use `| default(...)`)
    play.yaml:3:21: `bose` is not defined (did you mean `base`?)
    play.yaml:8:44: `prot` is not defined for h2 (did you mean `port`?)
    play.yaml:11:24: `r` has no field `stdot` (did you mean `r.stdout`?)
    play.yaml:13:24: `later` is not defined (define it in the inventory, the play's `vars`, or with `-e`; or use `| default(...)`)
    play.yaml:14:24: `facts` has no field `os.nmae` (did you mean `facts.os.name`?)
    ");
}

#[test]
fn on_a_host_that_is_no_member_a_task_has_to_say_which_cluster_it_is_about() {
    let bench = Bench::new(2);
    let play = r#"
- hosts: all
  tasks:
    - etcd_order:
    - etcd_order: { cluster: { members: [] } }
    - pki_ca:
      when: inventory_hostname == 'h1'
    - etcd_order: { cluster: { name: prod } }
"#;
    let errors = bench.load(play, Selection::default()).err().unwrap();
    insta::assert_snapshot!(errors.join("\n"), @r"
    play.yaml:4:17: h1 and 1 more are not members of a cluster (name the cluster with `cluster: {name: ..., members: ..., tls: ..., auth: ...}`)
    play.yaml:5:19: h1 and 1 more are not members of a cluster (name the cluster with `cluster: {name: ..., members: ..., tls: ..., auth: ...}`)
    play.yaml:6:13: h1 is not a member of a cluster (name the cluster with `cluster: {name: ..., tls: ...}`)
    ");
}

#[test]
fn a_cycle_is_told_with_its_lines() {
    let bench = Bench::new(2);
    let play = r#"
- hosts: all
  tasks:
    - name: One
      command: "true"
      needs: Two
    - name: Two
      command: "true"
"#;
    let errors = bench.load(play, Selection::default()).err().unwrap();
    insta::assert_snapshot!(errors.join("\n"), @r"
    play.yaml:6:14: tasks wait for each other in a circle:
      all/h1/One
      -> all/h1/Two
      -> all/h1/One (remove one of these `needs`, or move the task that is needed further up)
    ");
}

#[test]
fn tags_select_and_a_left_out_producer_is_an_error() {
    let bench = Bench::new(1);
    let play = r#"
- hosts: all
  tasks:
    - { name: A, command: "true", tags: a, register: ra }
    - { name: B, command: "echo {{ ra.rc }}", tags: b }
    - { name: C, command: "true", tags: always }
    - { name: D, command: "true", tags: never }
"#;
    let tags =
        |tags: &[&str]| Selection { tags: tags.iter().map(|t| (*t).to_owned()).collect(), ..Selection::default() };
    let names = |selection| {
        let loaded = bench.load(play, selection).unwrap();
        loaded.graph.work().map(|index| loaded.graph.task_of(index).unwrap().name.clone()).collect::<Vec<_>>().concat()
    };
    assert_eq!(names(tags(&[])), "ABC");
    assert_eq!(names(tags(&["a"])), "AC");
    assert_eq!(names(tags(&["a", "b", "never"])), "ABCD");
    let errors = bench.load(play, tags(&["b"])).err().unwrap();
    assert!(errors[0].contains("leaves out"), "{errors:?}");
}

#[test]
fn bad_targets_and_secrets_are_found_before_anything_runs() {
    let bench = Bench::new(2).inventory("groups:\n  web: { hosts: [h1, h2], vars: { token: !age YWdl } }\n");
    let play = r#"
- hosts: all
  tasks:
    - { command: "true", delegate_to: h11 }
    - { command: "true", on: hypervisor }
    - { command: "true", environment: { TOKEN: "{{ token }}" } }
    - { command: "echo {{ token }}" }
"#;
    let errors = bench.load(play, Selection::default()).err().unwrap();
    insta::assert_snapshot!(errors.join("\n"), @r"
    play.yaml:4:39: `h11` is not a host of the inventory (did you mean `h1`?)
    play.yaml:5:30: this runs on the hypervisor of each host, and h1 has none (give the host a `hypervisor` in the inventory, or leave the host out of `hosts:`)
    play.yaml:6:48: `TOKEN` would put a secret into the environment (pass it on `stdin` of the command, or write it to a file with mode 0600 by `copy` or `template`)
    ");
}

#[test]
fn the_graph_is_the_same_every_time_and_foresees_what_it_can() {
    let bench = Bench::new(2).inventory("groups:\n  web: { hosts: [h1] }\n");
    let play = r#"
- hosts: all
  serial: 1
  tasks:
    - { name: Where, command: "true", when: "'web' in group_names" }
    - { name: Late, command: "true", register: r }
    - { name: Reads, command: "true", when: r.changed, notify: Last }
    - { name: Items, command: "echo {{ item }}", loop: [1, 2, 3] }
    - { name: Once, command: "true", run_once: true }
  handlers:
    - { name: Last, command: "true" }
"#;
    let json = || {
        let loaded = bench.load(play, Selection::default()).unwrap();
        let text = loaded.graph.export(etcdrun::graph::Format::Json, &loaded.sources, &Default::default());
        text.replace(&bench.folder.path().display().to_string(), "")
    };
    assert_eq!(json(), json());
    insta::assert_snapshot!(json());
    for format in [etcdrun::graph::Format::Dot, etcdrun::graph::Format::Mermaid] {
        let loaded = bench.load(play, Selection::default()).unwrap();
        insta::assert_snapshot!(loaded.graph.export(format, &loaded.sources, &Default::default()));
    }
}

#[test]
fn a_broken_playbook_still_has_its_host_patterns_checked() {
    let bench = Bench::new(2);
    let play = "- hosts: h11\n  tasks:\n    - copi: { dest: x }\n    - command: echo {{ unheard_of }}\n";
    let errors = bench.load(play, Selection::default()).err().unwrap();
    insta::assert_snapshot!(errors.join("\n"), @r"
    play.yaml:3:7: unknown module `copi` (did you mean `copy`?)
    play.yaml:1:10: no host or group matches `h11` (did you mean `h1`?)
    ");
}

#[test]
fn set_fact_in_a_loop_builds_up() {
    let bench = Bench::new(1);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - set_fact: { found: "{{ found | default([]) + [double] }}" }
      loop: [1, 2, 3]
      loop_control: { index_var: index }
      vars: { double: "{{ item * 2 + index }}" }
    - name: Check
      assert: { that: "found == [2, 5, 8]" }
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
}

#[test]
fn conditions_keep_hosts_away_from_names_they_lack() {
    let bench = Bench::new(2).inventory("groups:\n  web: { hosts: [h1], vars: { port: 80, deep: { on: true } } }\n");
    let play = r#"
- hosts: all
  tasks:
    - { command: "echo {{ port }}", when: "'web' in group_names" }
    - { command: "echo {{ port }}", when: "inventory_hostname in groups['web'] and port > 1" }
    - { command: "echo {{ port }}", when: [deep is defined, deep.on] }
    - { command: "echo {{ port }}", when: "port | default('') | string | length > 0" }
"#;
    bench.load(play, Selection::default()).map_err(|errors| panic!("{errors:#?}")).ok();
    let report = bench.run(play);
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.events);
    assert_eq!((report.count(Status::Changed), report.count(Status::Skipped)), (4, 4));
}

#[test]
fn names_files_and_starts_that_lead_nowhere() {
    let bench = Bench::new(2);
    let play = r#"
- hosts: all
  tasks:
    - { copy: { src: nothing.txt, dest: /tmp/x } }
    - { template: { src: nothing.j2, dest: /tmp/x } }
    - { command: "echo {{ hostvars['h9'].x }}" }
    - { command: "echo {{ item }}", loop: "{{ item }}" }
    - { command: "true", become: true, become_user: "{{ whom }}" }
"#;
    let errors = bench.load(play, Selection::default()).err().unwrap().join("\n");
    let errors = errors.replace(&bench.folder.path().display().to_string(), "DIR");
    insta::assert_snapshot!(errors, @r"
    play.yaml:4:22: there is no file `nothing.txt` (looked in DIR/files, DIR)
    play.yaml:5:26: there is no file `nothing.j2` (looked in DIR/templates, DIR)
    play.yaml:6:27: `h9` is not a host of the inventory (did you mean `h2`?)
    play.yaml:7:47: `item` is not defined (define it in the inventory, the play's `vars`, or with `-e`; or use `| default(...)`)
    play.yaml:8:9: `whom` is not defined (define it in the inventory, the play's `vars`, or with `-e`; or use `| default(...)`)
    ");
    let start = Selection { start_at: Some("Wrte".into()), ..Selection::default() };
    let errors = bench.load("- hosts: all\n  tasks:\n    - { name: Write, command: 'true' }\n", start).err().unwrap();
    assert!(errors[0].contains("did you mean `Write`?"), "{errors:?}");
}

#[test]
fn reading_another_host_waits_for_what_it_sets() {
    let bench = Bench::new(3);
    let report = bench.run(
        r#"
- hosts: all
  tasks:
    - { name: Slow, command: sleep 0.5, when: inventory_hostname == 'h1' }
    - { name: Set, set_fact: { mine: "{{ inventory_hostname }}" } }
    - { name: Read, assert: { that: "hostvars['h1'].mine == 'h1'" } }
"#,
    );
    assert_eq!(report.result, RunResult::Success, "{:#?}", report.lines());
}
