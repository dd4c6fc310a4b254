//! `plan --out` and `playbook --plan`: exactly that, or nothing.

use std::os::unix::fs::PermissionsExt as _;

use super::Bench;

const PLAY: &str = r#"
- name: Site
  hosts: all
  tasks:
    - { name: Look, command: cat DIR/version, register: version, check_mode: false, changed_when: false }
    - { name: Write, copy: { content: "one\ntwo\n", dest: DIR/file } }
    - { name: Stays, copy: { content: "as it is\n", dest: DIR/kept } }
    - { name: Send, copy: { src: sent.txt, dest: DIR/sent } }
    - { name: Count, shell: "echo {{ version.stdout }} >>DIR/count" }
"#;

fn bench() -> Bench {
    let bench = Bench::new(1, PLAY);
    bench.folder.write("work/file", "one\n").write("work/kept", "as it is\n").write("work/version", "v1\n");
    bench.folder.write("sent.txt", "sent\n");
    let said = bench.folder.run(&["plan", "site.yaml", "--out", "site.plan", "-e", "password=hunter2"]).ends(0);
    assert!(said.stdout.ends_with("Saved: `etcdrun playbook --plan site.plan` runs exactly this\n"), "{}", said.stdout);
    bench
}

#[test]
fn what_was_planned_runs_whatever_has_become_of_the_playbook() {
    let bench = bench();
    let mode = std::fs::metadata(bench.folder.path("site.plan")).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode, bench.folder.read("site.plan").contains("hunter2")), (0o600, false));
    bench.playbook("- hosts: all\n  tasks: [{ command: rm -rf DIR }]\n");
    std::fs::remove_file(bench.folder.path("inventory.yaml")).unwrap();
    let said = bench.folder.run(&["playbook", "--plan", "site.plan"]).ends(0);
    assert!(said.stdout.contains("changed     h1  Write"), "{}", said.stdout);
    assert_eq!((bench.folder.read("work/file"), bench.folder.read("work/count")), ("one\ntwo\n".into(), "v1\n".into()));
    // It is done, so the plan does not hold any more.
    let said = bench.folder.run(&["playbook", "--plan", "site.plan"]).ends(7);
    assert!(said.stdout.contains("no change; planned: change"), "{}", said.stdout);
    assert_eq!(bench.folder.read("work/count"), "v1\n");
}

#[test]
fn where_the_world_has_moved_nothing_runs_and_it_is_said_what_moved() {
    let bench = bench();
    bench.folder.write("work/file", "by hand\n").write("work/kept", "another\n").write("work/version", "v2\n");
    let said = bench.folder.run(&["playbook", "--plan", "site.plan"]).ends(7);
    let text = said.stdout.replace(&bench.folder.path("work").display().to_string(), "/site");
    insta::assert_snapshot!(text);
    assert_eq!(bench.folder.read("work/file"), "by hand\n");
    assert!(!bench.folder.path("work/count").exists());
    assert_eq!(bench.folder.run(&["runs", "--json"]).ends(0).stdout.trim(), "[]", "nothing was begun");
    let said = bench.folder.run(&["playbook", "--plan", "site.plan", "--json"]).ends(7);
    assert_eq!(said.stdout.matches("\"event\":\"moved\"").count(), 3, "{}", said.stdout);
    // As it was, it runs, and no lock is in the way.
    bench.folder.write("work/file", "one\n").write("work/kept", "as it is\n").write("work/version", "v1\n");
    bench.folder.run(&["playbook", "--plan", "site.plan"]).ends(0);
}

#[test]
fn a_file_that_is_sent_must_be_the_one_that_was_planned() {
    let bench = bench();
    bench.folder.write("sent.txt", "another\n");
    let said = bench.folder.run(&["playbook", "--plan", "site.plan"]).ends(7);
    assert!(
        said.stderr.contains("changed since the plan was made") && said.stderr.contains("sent.txt"),
        "{}",
        said.stderr
    );
    assert_eq!(bench.folder.read("work/file"), "one\n");
}

#[test]
fn a_plan_that_is_none_has_a_way_out() {
    let bench = bench();
    let plan = bench.folder.read("site.plan");
    bench.folder.write("cut.plan", &plan[..plan.len() / 2]);
    for (name, problem) in
        [("cut.plan", "it is damaged or truncated"), ("site.yaml", "it is not a plan"), ("no.plan", "No such file")]
    {
        let said = bench.folder.run(&["playbook", "--plan", name]).ends(5);
        assert!(said.stderr.contains(problem) && said.stderr.contains("plan FILE --out"), "{}", said.stderr);
    }
    bench.folder.run(&["playbook", "--plan", "site.plan", "--limit", "h1"]).ends(5);
    bench.folder.run(&["playbook", "--plan", "site.plan", "site.yaml"]).ends(5);
    bench.playbook("- hosts: all\n  tasks: [{ fail: { msg: no } }]\n");
    let said = bench.folder.run(&["plan", "site.yaml", "--out", "failed.plan"]).ends(5);
    assert!(
        said.stderr.contains("the plan was not saved") && !bench.folder.path("failed.plan").exists(),
        "{}",
        said.stderr
    );
}

#[test]
fn a_planned_run_that_broke_off_is_resumed_like_any_other() {
    let bench = bench();
    let mut dying = bench.folder.command(&["playbook", "--plan", "site.plan"]);
    assert_eq!(dying.env("ETCDRUN_TEST_DIE", "after:5").status().unwrap().code(), None);
    bench.playbook("- hosts: all\n  tasks: []\n");
    bench.folder.run(&["resume"]).ends(0);
    assert_eq!((bench.folder.read("work/file"), bench.folder.read("work/count")), ("one\ntwo\n".into(), "v1\n".into()));
}
