//! Turns that are rolled back, in runs that are broken off and go on.

use super::support::Bench;

/// Each host has the lines of what was done to it, and what it has in the end.
const PLAY: &str = r#"
- name: Roll
  hosts: all
  rollout: { strategy: serial, on_failure: rollback }
  vars: { home: "DIR/{{ inventory_hostname }}" }
  tasks:
    - { name: Home, file: { path: "{{ home }}", state: directory } }
    - { name: Put, copy: { content: "{{ 'old' if rollout.undo else 'new' }}\n", dest: "{{ home }}/put" } }
    - { name: Count, shell: "echo {{ 'back' if rollout.undo else 'on' }} >>{{ home }}/count" }
    - { name: Look, command: "test -e DIR/repaired", when: not rollout.undo }
"#;

fn is(bench: &Bench, host: &str, put: &str, count: &str) {
    let work = bench.work();
    let of = |name: &str| work.get(&format!("{host}/{name}")).map_or("", String::as_str);
    assert_eq!((of("put"), of("count")), (put, count), "{work:#?}");
}

fn repair(bench: &Bench) {
    std::fs::write(bench.folder.path("work/repaired"), "").unwrap();
}

#[test]
fn a_turn_that_was_rolled_back_is_tried_again() {
    let bench = Bench::new(2, PLAY);
    bench.run().ends(2);
    is(&bench, "h1", "old\n", "on\nback\n");
    let again = bench.resume().ends(2);
    assert!(again.stdout.contains("rolled back on h1"), "{}", again.stdout);
    is(&bench, "h1", "old\n", "on\nback\non\nback\n");
    repair(&bench);
    bench.resume().ends(0);
    is(&bench, "h1", "new\n", "on\nback\non\nback\non\n");
    is(&bench, "h2", "new\n", "on\n");
}

/// Whoever dies on the way back goes on with it, and what is back is not put back twice.
#[test]
fn an_operator_who_dies_while_a_turn_is_rolled_back_goes_on_with_that() {
    let bench = Bench::new(2, PLAY);
    let count = |bench: &Bench, host: &str| bench.work().remove(&format!("{host}/count")).unwrap_or_default();
    bench.killed_until(&["playbook", "site.yaml"], |bench| count(bench, "h1").ends_with("back\n"));
    bench.resume().ends(2);
    is(&bench, "h1", "old\n", "on\nback\n");
    repair(&bench);
    bench.killed_until(&["resume"], |bench| count(bench, "h2").ends_with("on\n"));
    bench.resume().ends(0);
    is(&bench, "h1", "new\n", "on\nback\non\n");
    is(&bench, "h2", "new\n", "on\n");
}
