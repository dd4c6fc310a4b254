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

/// A strategy of the user, which has no tasks after a turn. What it has looked at is from then; what it has told somebody is told.
#[test]
fn what_a_strategy_has_looked_at_is_looked_at_again_by_resume() {
    let bench = Bench::new(
        2,
        r#"
- name: Roll
  hosts: all
  rollout: { strategy: mine }
  tasks:
    - { name: Try, command: "test -e DIR/repaired", changed_when: false }
    - { name: Count, shell: "echo {{ inventory_hostname }} >>DIR/count" }
"#,
    );
    let work = bench.folder.path("work");
    std::fs::create_dir_all(&work).unwrap();
    let append = |name: &str| {
        format!("shell: echo {{{{ inventory_hostname }}}} >>{}/{name}\n  changed_when: false", work.display())
    };
    let before = format!("- name: Tell\n  {}\n  on: operator\n- name: Look\n  {}\n", append("told"), append("looks"));
    bench.folder.write("roles/rollout_mine/tasks/before.yaml", &before);
    let next = "- { turn_order: { order: [h2, h1] }, run_once: true, register: rollout_next }\n";
    bench.folder.write("roles/rollout_mine/tasks/next.yaml", next);
    let has = |name: &str| bench.work().remove(name).unwrap_or_default();
    bench.run().ends(2);
    assert_eq!((has("told"), has("looks")), ("h2\n".to_owned(), "h2\n".to_owned()));
    repair(&bench);
    bench.resume().ends(0);
    assert_eq!((has("told"), has("looks")), ("h2\nh1\n".to_owned(), "h2\nh2\nh1\n".to_owned()));
    assert_eq!(has("count"), "h2\nh1\n");
}
