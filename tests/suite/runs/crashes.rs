//! kill -9 of the operator's process, wherever it is in its journal.

use super::support::Bench;

/// Forty nodes on three hosts. Each command adds a line to a file of its own.
const PLAY: &str = r#"
- name: Site
  hosts: all
  vars: { home: "DIR/{{ inventory_hostname }}" }
  tasks:
    - { name: Home, file: { path: "{{ home }}", state: directory } }
    - { name: Settings, copy: { dest: "{{ home }}/settings", content: "one\n" }, notify: Restart }
    - { name: First, shell: "echo x >>{{ home }}/first; wc -l <{{ home }}/first", register: first }
    - { name: Fact, set_fact: { count: "{{ first.stdout | trim }}" } }
    - { name: Use it, copy: { dest: "{{ home }}/used", content: "{{ count }} {{ first.rc }}\n" } }
    - { name: Loop, command: "sh -c 'echo {{ item }} >>{{ home }}/loop'", loop: [a, b], register: looped }
    - { name: Loop result, copy: { dest: "{{ home }}/looped", content: "{{ looped.results | length }}\n" } }
    - name: Guarded
      block:
        - { name: Inside, shell: "echo x >>{{ home }}/inside; exit 3" }
      rescue:
        - { name: Rescue, command: "sh -c 'echo {{ ansible_failed_result.rc }} >>{{ home }}/rescue'" }
      always:
        - { name: Always, shell: "echo x >>{{ home }}/always" }
    - { name: Line, line_in_file: { path: "{{ home }}/settings", line: "two" }, notify: Restart }
    - { name: Last, command: "sh -c 'echo x >>{{ home }}/last'" }
  handlers:
    - { name: Restart, shell: "echo x >>{{ home }}/restart; cat {{ home }}/settings >>{{ home }}/restart" }
- name: End
  hosts: h1
  tasks:
    - { name: The end, shell: "cat DIR/*/last >>DIR/end" }
"#;

const PLACES: [&str; 4] = ["before", "torn", "written", "after"];

fn bench() -> Bench {
    Bench::new(3, PLAY)
}

/// Crashes again and again, each time `distance` records further on, until nothing is left to do.
fn crash_through(distance: usize, first_place: usize) {
    let undisturbed = bench();
    undisturbed.run().ends(0);
    let bench = bench();
    let mut said = bench.dying(&["playbook", "site.yaml"], &format!("after:{distance}"));
    let mut crashes = 1;
    while said.code == -1 && bench.runs()[0]["state"] == "crashed" {
        let place = PLACES[(crashes + first_place) % PLACES.len()];
        // The first record of a process that resumes only says so.
        let point = format!("{place}:{}", bench.records() + 1 + distance + crashes % 2);
        said = bench.dying(&["resume"], &point);
        crashes += 1;
        assert!(crashes < 200, "it never ends");
    }
    assert!(said.code <= 0, "{}{}", said.stdout, said.stderr);
    assert!(crashes > 20, "only {crashes} crashes");
    assert_eq!(bench.work(), undisturbed.work(), "{crashes} crashes\n{}", said.stdout);
    assert_eq!(bench.runs()[0]["state"], "done");
    let nodes = bench.nodes();
    assert_eq!(nodes.len(), 40, "{nodes:#?}");
    assert!(nodes.values().all(|state| matches!(state.as_str(), "ok" | "changed" | "rescued")), "{nodes:#?}");
    assert_eq!((undisturbed.ledgers(), bench.ledgers()), (0, 0), "what hosts remember is gone");
}

#[test]
fn a_run_that_crashes_at_every_record_ends_as_if_it_had_not() {
    crash_through(1, 0);
}

#[test]
fn a_run_that_crashes_now_and_then_ends_as_if_it_had_not() {
    crash_through(3, 1);
}

#[test]
fn a_run_that_crashes_elsewhere_at_every_record_ends_as_if_it_had_not() {
    crash_through(1, 2);
}
