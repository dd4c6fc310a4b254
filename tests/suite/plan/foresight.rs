//! What is a change, what is none, and what nobody can know before it is done.

use super::Bench;

const ALL: &str = r#"
- name: All kinds
  hosts: all
  tasks:
    - { name: Make the folder, file: { path: DIR/new, state: directory } }
    - { name: Write into it, copy: { content: "one\n", dest: DIR/new/a }, register: written, notify: Sure }
    - { name: Edit what is not there, line_in_file: { path: DIR/new/a, line: two } }
    - { name: Is as wanted, copy: { content: "same\n", dest: DIR/same } }
    - { name: Differs, copy: { content: "a\nB\nc\n", dest: DIR/differs, mode: u=rw } }
    - { name: Beside, copy: { content: "beside\n", dest: DIR/newer } }
    - { name: Ask, command: hostname, register: asked, notify: Perhaps }
    - { name: Ask for real, command: echo sure, register: known, check_mode: false, changed_when: false }
    - { name: Read the unknown, debug: { msg: "{{ asked.stdout }}" } }
    - { name: Read the known, debug: { msg: "{{ known.stdout }}" } }
    - { name: Only that it changes, debug: { msg: it does }, when: written is changed }
    - { name: What it changes, debug: { msg: "{{ written.sha256 }}" } }
    - { name: Is it there at all, debug: { msg: it is }, when: asked is defined }
    - { name: Set from the unknown, set_fact: { derived: "{{ asked.rc }}" } }
    - { name: Compare the unknown, debug: { msg: equal }, when: derived == 0 }
    - { name: Default for the unknown, debug: { msg: "{{ asked.stdout | default('x') }}" } }
    - { name: Loop over the unknown, debug: { msg: "{{ item }}" }, loop: "{{ asked.stdout_lines }}" }
    - { name: Another host's, debug: { msg: "{{ hostvars['h1'].asked.stdout }}" } }
    - { name: Judge what is not there, command: hostname, register: judged, failed_when: "'x' not in judged.stdout" }
    - { name: Wait for what is not there, command: hostname, register: waited, until: waited.rc == 0, retries: 3, delay: 60 }
    - { name: Where the unknown leads, copy: { content: "", dest: DIR/x }, when: asked.rc == 0 }
    - { name: Behind that, file: { path: DIR/x, state: file, mode: "0600" } }
    - { name: Would fail now, copy: { src: DIR/made-by-a-command, remote_src: true, dest: DIR/copy } }
    - { name: Write a unit, copy: { content: "[Service]\n", dest: /etc/systemd/system/etcdrun-no-such.service } }
    - { name: Start the unit, service: { name: etcdrun-no-such, state: started } }
    - { name: A command with nothing to do, command: { cmd: touch DIR/same, creates: DIR/same } }
    - { name: A command that waits for a file, command: { cmd: touch DIR/other, creates: DIR/new/a } }
  handlers:
    - { name: Sure, file: { path: DIR/sure, state: touch } }
    - { name: Perhaps, file: { path: DIR/perhaps, state: touch } }
"#;

const WANTED: &[(&str, &str, &str)] = &[
    ("Make the folder", "changed", "made the directory"),
    ("Write into it", "changed", "does not exist yet"),
    ("Edit what is not there", "unknown", "new/a, which “Write into it” would change"),
    ("Is as wanted", "ok", ""),
    ("Differs", "changed", ""),
    ("Beside", "changed", ""),
    ("Ask", "unknown", "cannot be predicted"),
    ("Ask for real", "ok", ""),
    ("Read the unknown", "unknown", "depends on `asked`, the result of “Ask”"),
    ("Read the known", "ok", "sure"),
    ("Only that it changes", "ok", "it does"),
    ("What it changes", "unknown", "depends on `written`"),
    ("Is it there at all", "ok", "it is"),
    ("Set from the unknown", "unknown", "depends on `asked`"),
    ("Compare the unknown", "unknown", "depends on `derived`, which “Set from the unknown” would set"),
    ("Default for the unknown", "unknown", "depends on `asked`"),
    ("Loop over the unknown", "unknown", "depends on `asked`"),
    ("Another host's", "unknown", "depends on `asked`"),
    ("Judge what is not there", "unknown", "cannot be predicted"),
    ("Wait for what is not there", "unknown", "cannot be predicted"),
    ("Where the unknown leads", "unknown", "depends on `asked`"),
    ("Behind that", "unknown", "/x, which “Where the unknown leads” would change"),
    ("Would fail now", "unknown", "as things are now it would fail"),
    ("Write a unit", "changed", ""),
    ("Start the unit", "unknown", "etcdrun-no-such.service, which “Write a unit” would change"),
    ("A command with nothing to do", "ok", "not run, because"),
    ("A command that waits for a file", "unknown", "new/a, which “Write into it” would change"),
    ("Sure", "changed", ""),
    ("Perhaps", "unknown", "runs only if “Ask” changes something"),
];

fn bench() -> Bench {
    let bench = Bench::new(1, ALL);
    bench.folder.write("work/same", "same\n").write("work/differs", "a\nb\nc\n");
    bench
}

#[test]
fn unknown_travels_by_what_is_read_and_by_what_is_looked_at_and_not_by_order() {
    let bench = bench();
    let foreseen = bench.foreseen();
    for (task, word, said) in WANTED {
        let (found, message) = foreseen.get(*task).unwrap_or_else(|| panic!("{task} is not in {foreseen:#?}"));
        assert!(found == word && message.contains(said), "{task}: {found} ({message}), not {word} ({said})");
    }
    assert_eq!(foreseen.len(), WANTED.len(), "{foreseen:#?}");
    for left in ["work/new", "work/sure", "work/x", "home/.etcdrun", ".etcdrun"] {
        assert!(!bench.folder.path(left).exists(), "{left}");
    }
}

/// What a person sees.
#[test]
fn a_plan_as_it_is_read() {
    let bench = bench();
    let said = bench.plan().ends(0).stdout;
    let said = said.replace(&bench.folder.path("work").display().to_string(), "/site");
    let (plan, time) = said.trim_end().rsplit_once(" (").unwrap();
    assert!(time.ends_with("s)"), "{time}");
    insta::assert_snapshot!(plan);
}

#[test]
fn hosts_of_which_the_same_can_be_said_share_a_line() {
    let play = "
- name: Three
  hosts: all
  tasks:
    - { name: Same everywhere, copy: { content: \"x\\n\", dest: \"DIR/{{ inventory_hostname }}\" } }
    - { name: Ping, ping: {} }
    - { name: Never, ping: {}, when: false }
";
    let bench = Bench::new(3, play);
    bench.folder.write("work/h2", "x\n");
    let said = bench.plan().ends(0).stdout;
    assert!(said.contains("no change   Same everywhere  on h2\n"), "{said}");
    assert!(said.contains("no change   Ping  on h1, h2, h3\n") && !said.contains("Never"), "{said}");
    assert!(said.contains("Plan: 2 to change, 7 unchanged, 0 unknown on 3 hosts ("), "{said}");
    let said = bench.folder.run(&["plan", "site.yaml", "-v", "--limit", "h2"]).ends(0).stdout;
    assert!(said.contains("skipped     Never  on h2"), "{said}");
}

#[test]
fn a_failure_that_no_earlier_change_can_help_is_a_failure() {
    let play = "
- hosts: all
  tasks:
    - { name: Change, copy: { content: x, dest: DIR/file } }
    - { name: Fails, file: { path: DIR/is-a-file, state: directory } }
    - { name: Behind it, ping: {} }
";
    let bench = Bench::new(1, play);
    bench.folder.write("work/is-a-file", "");
    let said = bench.plan().ends(2).stdout;
    assert!(said.contains("failed      Fails  on h1") && said.contains("is not a directory"), "{said}");
    assert!(
        said.contains("not planned Behind it") && said.contains("1 to change, 0 unchanged, 0 unknown, 2 failed"),
        "{said}"
    );
    bench.folder.run(&["plan", "site.yaml", "--detailed-exitcode"]).ends(1);
}

#[test]
fn the_detailed_exit_code_is_terraforms() {
    let bench = Bench::new(1, "- hosts: all\n  tasks: [{ copy: { content: x, dest: DIR/file } }]\n");
    bench.plan().ends(0);
    bench.folder.run(&["plan", "site.yaml", "--detailed-exitcode"]).ends(2);
    bench.folder.run(&["playbook", "site.yaml", "--check", "--detailed-exitcode"]).ends(2);
    bench.folder.run(&["playbook", "site.yaml", "--detailed-exitcode"]).ends(5);
    bench.folder.run(&["playbook", "site.yaml"]).ends(0);
    bench.folder.run(&["plan", "site.yaml", "--detailed-exitcode"]).ends(0);
    bench.folder.run(&["playbook", "site.yaml", "--check", "--detailed-exitcode"]).ends(0);
    bench.playbook("- hosts: all\n  tasks: [{ command: 'true' }]\n");
    bench.folder.run(&["plan", "site.yaml", "--detailed-exitcode"]).ends(2);
    bench.playbook("- hosts: all\n  tasks: [{ nonsense: 'true' }]\n");
    bench.folder.run(&["plan", "site.yaml", "--detailed-exitcode"]).ends(5);
}

#[test]
fn a_plan_takes_no_lock_and_says_who_has_it() {
    let bench = Bench::new(1, "- hosts: all\n  tasks: [{ copy: { content: x, dest: DIR/file } }]\n");
    // As a run that has crashed leaves it.
    let mut dying = bench.folder.command(&["playbook", "site.yaml"]);
    assert_eq!(dying.env("ETCDRUN_TEST_DIE", "after:3").status().unwrap().code(), None);
    let said = bench.plan().ends(0).stdout;
    assert!(said.contains("warning: host h1 is locked by run") && said.contains("1 to change"), "{said}");
}
