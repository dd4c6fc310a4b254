//! Two operators at once, locks that a crash leaves behind, and locks that somebody breaks.

use std::{
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use super::support::Bench;
use crate::support::Sshd;

/// Commands that wait for the test, one after the other, each with a mark of its own.
const PLAY: &str = r#"
- name: Long
  hosts: all
  tasks:
    - { name: Home, file: { path: DIR, state: directory } }
    - name: First
      shell: "echo x >>DIR/{{ inventory_hostname }}; while test -d DIR && ! test -e DIR/go; do sleep 0.05; done"
      register: first
    - { name: Second, shell: "echo {{ first.rc }} >>DIR/second-{{ inventory_hostname }}" }
"#;

fn members(bench: &Bench) -> &Bench {
    let ssh = bench.sshd.inventory_ssh();
    let mut text = format!("{ssh}clusters:\n  prod:\n    members:\n");
    for n in 1..=3 {
        let (_, address) = Sshd::host(n);
        text += &format!("      etcd-{n}: {{ address: {address} }}\n");
    }
    bench.folder.write("inventory.yaml", &text);
    bench
}

fn wait_for(bench: &Bench, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !bench.folder.path(name).exists() {
        assert!(Instant::now() < deadline, "{name} never comes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn start(bench: &Bench, more: &[&str]) -> Child {
    let args = [&["playbook", "site.yaml"], more].concat();
    bench.folder.command(&args).stdout(Stdio::piped()).spawn().unwrap()
}

fn ends(child: Child, code: i32) -> String {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

/// Lock files on the hosts, all of which share a home here.
fn locks(bench: &Bench) -> Vec<String> {
    let entries = std::fs::read_dir(bench.folder.path("home/.etcdrun/locks")).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| name.ends_with(".lock"));
    names.sort();
    names
}

#[test]
fn runs_on_two_members_of_a_cluster_exclude_each_other() {
    let bench = Bench::new(0, PLAY);
    members(&bench);
    let first = start(&bench, &["--limit", "etcd-1"]);
    wait_for(&bench, "work/etcd-1");
    assert_eq!(locks(&bench), ["cluster-prod.lock"]);
    let id = bench.run_id();
    let said = bench.folder.run(&["playbook", "site.yaml", "--limit", "etcd-2"]).ends(6);
    for part in ["cluster prod is locked by run", &id, "process", "still running", "etcd-2"] {
        assert!(said.stdout.contains(part), "lacks {part:?}:\n{}{}", said.stdout, said.stderr);
    }
    assert!(!bench.folder.path("work/etcd-2").exists());
    assert_eq!(bench.runs().len(), 1, "a run that never began is not kept");
    let look = bench.folder.run(&["playbook", "site.yaml", "--limit", "etcd-2", "--check"]).ends(0);
    assert!(look.stdout.contains("cluster prod is locked"), "{}", look.stdout);
    bench.folder.run(&["exec", "etcd-2", "-m", "ping"]).ends(0);
    let waiting = start(&bench, &["--limit", "etcd-2", "--lock-timeout", "30s"]);
    bench.folder.write("work/go", "");
    ends(first, 0);
    ends(waiting, 0);
    assert_eq!(locks(&bench), [""; 0], "released at the end");
    assert_eq!(bench.folder.read("work/etcd-2"), "x\n");
}

#[test]
fn other_hosts_are_free() {
    let bench = Bench::new(2, PLAY);
    let first = start(&bench, &["--limit", "h1"]);
    wait_for(&bench, "work/h1");
    let second = start(&bench, &["--limit", "h2"]);
    wait_for(&bench, "work/h2");
    assert_eq!(locks(&bench), ["host-h1.lock", "host-h2.lock"]);
    bench.folder.write("work/go", "");
    ends(first, 0);
    ends(second, 0);
}

#[test]
fn a_failure_releases_and_a_crash_does_not() {
    let bench = Bench::new(1, "- hosts: all\n  tasks:\n    - { name: Fail, command: 'false' }\n");
    bench.run().ends(2);
    assert_eq!(locks(&bench), [""; 0]);
    bench.playbook(PLAY);
    let mut child = start(&bench, &[]);
    wait_for(&bench, "work/h1");
    child.kill().unwrap();
    child.wait().unwrap();
    let id = bench.run_id();
    let said = bench.run().ends(6);
    for part in [&format!("`etcdrun resume {id}`"), &format!("`etcdrun unlock {id}`"), "has crashed"] {
        assert!(said.stdout.contains(part), "lacks {part:?}:\n{}", said.stdout);
    }
    bench.folder.write("work/go", "");
    bench.folder.run(&["resume", &id]).ends(0);
    assert_eq!(locks(&bench), [""; 0]);
    assert_eq!(bench.folder.read("work/h1"), "x\n");
}

#[test]
fn a_run_whose_lock_was_broken_changes_nothing_more() {
    let bench = Bench::new(1, PLAY);
    let first = start(&bench, &[]);
    wait_for(&bench, "work/h1");
    let id = bench.run_id();
    let said = bench.folder.run(&["unlock", &id]).ends(5);
    assert!(said.stderr.contains("is going on right now"), "{}", said.stderr);
    let said = bench.folder.run(&["unlock", &id, "--force"]).ends(0);
    assert!(said.stdout.contains("h1: 1 broken"), "{}", said.stdout);
    bench.folder.write("work/go", "");
    let said = ends(first, 6);
    assert!(said.contains("no longer held by this run"), "{said}");
    assert!(!bench.folder.path("work/second-h1").exists());
    bench.folder.run(&["unlock", &id]).ends(5);
    bench.folder.run(&["resume", &id]).ends(0);
    assert_eq!(bench.folder.read("work/second-h1"), "0\n");
    assert_eq!(bench.folder.read("work/h1"), "x\n");
}

#[test]
fn a_dead_member_need_not_grant_but_most_must() {
    let bench = Bench::new(0, "- hosts: etcd-1\n  tasks:\n    - { name: Mark, shell: 'echo x >>DIR' }\n");
    members(&bench);
    let text = bench.folder.read("inventory.yaml");
    let dead = |n: usize, text: &str| {
        let (_, address) = Sshd::host(n);
        text.replace(&format!("address: {address}"), &format!("address: {address}, port: 1"))
    };
    bench.folder.write("inventory.yaml", &dead(3, &text));
    bench.run().ends(0);
    bench.folder.write("inventory.yaml", &dead(2, &dead(3, &text)));
    let said = bench.run().ends(4);
    assert!(said.stdout.contains("1 of 3 members of cluster prod"), "{}", said.stdout);
    assert_eq!(bench.folder.read("work"), "x\n");
}
