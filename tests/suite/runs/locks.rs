//! Two operators at once, locks that a crash leaves behind, and hosts that cannot grant theirs.

use std::{
    os::unix::fs::PermissionsExt as _,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::support::{Bench, SmallDisk};
use crate::support::{Sshd, TempUser, program::Said, signal};

/// Commands that wait for the test, one after the other, each with a mark of its own.
pub(super) const PLAY: &str = r#"
- name: Long
  hosts: all
  tasks:
    - { name: Home, file: { path: DIR, state: directory } }
    - name: First
      shell: "echo x >>DIR/{{ inventory_hostname }}; while test -d DIR && ! test -e DIR/go; do sleep 0.05; done"
      register: first
    - { name: Second, shell: "echo {{ first.rc }} >>DIR/second-{{ inventory_hostname }}" }
"#;

pub(super) fn members(bench: &Bench) -> &Bench {
    let ssh = bench.sshd.inventory_ssh();
    let mut text = format!("{ssh}clusters:\n  prod:\n    members:\n");
    for n in 1..=3 {
        let (_, address) = Sshd::host(n);
        text += &format!("      etcd-{n}: {{ address: {address} }}\n");
    }
    bench.folder.write("inventory.yaml", &text);
    bench
}

pub(super) fn wait_for(bench: &Bench, name: &str) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !bench.folder.path(name).exists() {
        assert!(Instant::now() < deadline, "{name} never comes");
        std::thread::sleep(Duration::from_millis(5));
    }
}

pub(super) fn start(bench: &Bench, more: &[&str]) -> Child {
    let args = [&["playbook", "site.yaml"], more].concat();
    bench.folder.command(&args).stdout(Stdio::piped()).spawn().unwrap()
}

pub(super) fn ends(child: Child, code: i32) -> String {
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(code), "{said}");
    said
}

/// Lock files on the hosts, all of which are one machine here.
pub(super) fn locks(bench: &Bench) -> Vec<String> {
    let entries = std::fs::read_dir(bench.folder.path("locks")).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.retain(|name| !name.contains("+generation+"));
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
    for part in ["cluster prod is locked by run", &id, "process", "still active", "etcd-2"] {
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
    assert!(said.stdout.contains("1 of 3 members of `prod`"), "{}", said.stdout);
    assert_eq!(bench.folder.read("work"), "x\n");
}

#[test]
fn a_lock_that_few_hypervisors_keep_is_taken_with_a_warning() {
    let bench = Bench::new(0, "- hosts: etcd-1\n  tasks:\n    - { name: Mark, shell: 'echo x >>DIR' }\n");
    for (answer, is_told) in [(1, true), (2, false)] {
        let host = |n: usize, is_up: bool| {
            let (_, address) = Sshd::host(n);
            format!("address: {address}{}", if is_up { "" } else { ", port: 1" })
        };
        let mut text = bench.sshd.inventory_ssh() + "hypervisors:\n";
        for n in 1..=3 {
            text += &format!("  hv-{n}: {{ {} }}\n", host(n + 10, n <= answer));
        }
        text += "clusters:\n  prod:\n    members:\n";
        for n in 1..=3 {
            text += &format!("      etcd-{n}: {{ hypervisor: hv-{n}, {} }}\n", host(n, n == 1));
        }
        bench.folder.write("inventory.yaml", &text);
        let said = bench.run().ends(0);
        assert!(said.stdout.contains("it is held on their hypervisors"), "{}", said.stdout);
        assert_eq!(said.stdout.contains("but only 1 of 3 answer"), is_told, "{}", said.stdout);
    }
}

/// Hosts h1 and h2, the second on a server of its own, which is down.
fn with_one_down(play: &str) -> (Bench, Sshd) {
    let bench = Bench::new(1, play);
    let mut other = Sshd::builder().env("HOME", &bench.folder.path("home").display().to_string()).start();
    other.kill();
    let text = bench.folder.read("inventory.yaml");
    let (port, key, known) = (other.port, other.key(), other.known_hosts());
    let ssh = format!("port: {port}, identity_file: {}, known_hosts: {}", key.display(), known.display());
    bench.folder.write("inventory.yaml", &format!("{text}  h2: {{ address: 127.0.1.2, ssh: {{ {ssh} }} }}\n"));
    (bench, other)
}

const FIRST_THEN_SECOND: &str = r#"
- name: First
  hosts: h1
  tasks:
    - { name: Home, file: { path: DIR, state: directory } }
    - { name: Wait, shell: "echo x >>DIR/h1; while test -d DIR && ! test -e DIR/go; do sleep 0.05; done" }
- name: Second
  hosts: h2
  tasks:
    - { name: Mark, shell: "echo x >>DIR/h2; while test -d DIR && ! test -e DIR/end; do sleep 0.05; done" }
"#;

#[test]
fn a_host_that_comes_back_is_locked_before_it_is_changed() {
    let (bench, mut other) = with_one_down(FIRST_THEN_SECOND);
    let run = start(&bench, &[]);
    wait_for(&bench, "work/h1");
    assert_eq!(locks(&bench), ["host-h1.lock"]);
    other.restart();
    bench.folder.write("work/go", "");
    wait_for(&bench, "work/h2");
    assert_eq!(locks(&bench), ["host-h1.lock", "host-h2.lock"]);
    bench.folder.write("work/end", "");
    ends(run, 0);
    assert_eq!(locks(&bench), [""; 0]);
}

#[test]
fn a_host_that_comes_back_with_the_lock_of_another_run_is_not_changed() {
    let (bench, mut other) = with_one_down(FIRST_THEN_SECOND);
    let run = start(&bench, &[]);
    wait_for(&bench, "work/h1");
    other.restart();
    let elsewhere = "sh -c 'echo y >>DIR/other; while test -d DIR && ! test -e DIR/end; do sleep 0.05; done'"
        .replace("DIR", &bench.folder.path("work").display().to_string());
    let mut second =
        bench.folder.command(&["exec", "h2", "--shell", &elsewhere]).stdout(Stdio::null()).spawn().unwrap();
    wait_for(&bench, "work/other");
    bench.folder.write("work/go", "");
    let said = ends(run, 2);
    assert!(said.contains("not run: host h2 is locked by run"), "{said}");
    assert!(!bench.folder.path("work/h2").exists());
    bench.folder.write("work/end", "");
    assert_eq!(second.wait().unwrap().code(), Some(0));
}

#[test]
fn a_host_that_is_out_of_reach_at_the_end_is_named_with_what_removes_its_lock() {
    let (bench, mut other) = with_one_down(
        r#"
- name: First
  hosts: h2
  tasks: [{ name: Mark, file: { path: DIR, state: directory } }]
- name: Second
  hosts: h1
  tasks: [{ name: Wait, shell: "echo x >>DIR/h1; while test -d DIR && ! test -e DIR/go; do sleep 0.05; done" }]
"#,
    );
    other.restart();
    let run = start(&bench, &[]);
    wait_for(&bench, "work/h1");
    other.kill();
    bench.folder.write("work/go", "");
    let said = ends(run, 0);
    let unlock = format!("`etcdrun unlock {}` removes it", bench.run_id());
    for part in ["h2 may still have the lock of this run", &unlock] {
        assert!(said.contains(part), "lacks {part:?}:\n{said}");
    }
    assert_eq!(locks(&bench), ["host-h2.lock"]);
}

#[test]
fn a_host_that_can_keep_no_lock_is_not_changed() {
    let bench = Bench::new(1, "- hosts: all\n  tasks:\n    - { name: Mark, shell: 'echo x >>DIR' }\n");
    bench.folder.write("blocked", "");
    let blocked = bench.folder.path("blocked/locks");
    let disk = SmallDisk::mount(bench.folder.path("full"), "4k");
    std::fs::write(disk.path().join("all of it"), [0; 4096]).unwrap();
    for place in [blocked.as_path(), disk.path()] {
        let said =
            Said::of(bench.folder.command(&["playbook", "site.yaml"]).env("ETCDRUN_LOCK_DIR", place).output().unwrap())
                .ends(2);
        let part = "h1 cannot store the lock of this run, so nothing is changed there: cannot write to";
        assert!(said.stdout.contains(part), "lacks {part:?}:\n{}", said.stdout);
        assert!(!bench.folder.path("work").exists());
    }
    let left: Vec<_> = std::fs::read_dir(disk.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, ["all of it"], "nothing of the lock stays");
}

#[test]
fn operators_who_log_in_as_different_users_see_each_others_locks() {
    let (bench, user) = (Bench::new(1, PLAY), TempUser::create());
    let shared = tempfile::tempdir().unwrap();
    std::fs::set_permissions(shared.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let place = shared.path().join("locks");
    let mut command = bench.folder.command(&["playbook", "site.yaml"]);
    let mut first = command.env("ETCDRUN_LOCK_DIR", &place).stdout(Stdio::null()).spawn().unwrap();
    wait_for(&bench, "work/h1");
    let as_other = |more: &[&str]| {
        let args = [&["exec", "h1", "--user", &user.name], more, &["--", "true"]].concat();
        Said::of(bench.folder.command(&args).env("ETCDRUN_LOCK_DIR", &place).output().unwrap())
    };
    let inventory = bench.folder.read("inventory.yaml");
    bench.folder.write("inventory.yaml", &inventory.replace(&format!("  user: {}\n", bench.sshd.user), ""));
    let said = as_other(&[]).ends(6);
    assert!(said.stdout.contains("host h1 is locked by run"), "{}", said.stdout);
    as_other(&["--read-only"]).ends(0);
    bench.folder.write("work/go", "");
    assert_eq!(first.wait().unwrap().code(), Some(0));
    as_other(&[]).ends(0);
    let left: Vec<_> = std::fs::read_dir(&place).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left.len(), 2, "a generation of each user: {left:?}");
}

#[test]
fn a_host_that_a_template_names_is_locked_when_it_is_known() {
    let play = r#"
- name: Elsewhere
  hosts: h1
  tasks:
    - { name: Name, shell: "echo h2", register: named, changed_when: false }
    - name: Mark
      shell: "mkdir -p DIR; echo x >>DIR/h2; while test -d DIR && ! test -e DIR/go; do sleep 0.05; done"
      delegate_to: "{{ named.stdout }}"
"#;
    let bench = Bench::new(2, play);
    let run = start(&bench, &[]);
    wait_for(&bench, "work/h2");
    assert!(locks(&bench).contains(&"host-h2.lock".to_owned()), "{:?}", locks(&bench));
    let said = bench.folder.run(&["exec", "h2", "--", "true"]).ends(6);
    assert!(said.stdout.contains("host h2 is locked by run"), "{}", said.stdout);
    bench.folder.write("work/go", "");
    ends(run, 0);
    assert_eq!(locks(&bench), [""; 0]);
}

#[test]
fn commands_that_only_look_do_not_exclude_each_other() {
    let bench = Bench::new(1, PLAY);
    let looks = format!("touch {0}; while ! test -e {0}.go; do sleep 0.05; done", bench.folder.path("look").display());
    let mut first = bench.folder.command(&["exec", "h1", "--read-only", "--shell", &looks]).spawn().unwrap();
    wait_for(&bench, "look");
    assert_eq!(locks(&bench), [""; 0]);
    bench.folder.run(&["exec", "h1", "--read-only", "--", "true"]).ends(0);
    bench.folder.run(&["exec", "h1", "--", "true"]).ends(0);
    bench.folder.write("look.go", "");
    assert_eq!(first.wait().unwrap().code(), Some(0));
    let said = bench.folder.run(&["exec", "h1", "--read-only", "-m", "file", "-a", "path=/tmp/x state=touch"]).ends(5);
    assert!(said.stderr.contains("--read-only is only for commands"), "{}", said.stderr);
}

#[test]
fn who_leaves_at_once_is_told_what_stays() {
    let bench = Bench::new(1, PLAY);
    let mut command = bench.folder.command(&["playbook", "site.yaml"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    wait_for(&bench, "work/h1");
    let pid = i32::try_from(child.id()).unwrap();
    // One that is still to be handled swallows another of its kind.
    signal(pid, Signal::INT);
    let deadline = Instant::now() + Duration::from_secs(20);
    while !bench.run_folder().join("events").exists() || !bench.events().contains("\"interrupted\"") {
        assert!(Instant::now() < deadline, "it does not heed the first");
        std::thread::sleep(Duration::from_millis(5));
    }
    signal(pid, Signal::INT);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    let id = bench.run_id();
    assert_eq!(output.status.code(), Some(130), "{said}");
    for part in ["continue on their hosts", &format!("`etcdrun resume {id}`"), &format!("`etcdrun unlock {id}`")] {
        assert!(said.contains(part), "lacks {part:?}:\n{said}");
    }
    assert_eq!(locks(&bench), ["host-h1.lock"]);
    bench.folder.write("work/go", "");
    bench.resume().ends(0);
}

/// The session is gone between the lock and the word that it is taken; `sync` comes just there.
#[test]
fn a_lock_whose_grant_was_never_heard_of_is_not_left_behind() {
    let tools = tempfile::tempdir().unwrap();
    let cut = r#"#!/bin/sh
if ! mkdir "$0.cut" 2>/dev/null; then exec /usr/bin/sync "$@"; fi
ls -d LOCKS/*.lock >"$0.held"
pid=$$
for _ in 1 2 3 4 5 6 7 8; do
    read -r _ name _ pid _ <"/proc/$pid/stat"
    read -r name <"/proc/$pid/comm"
    case $name in sshd*) kill -9 "$pid"; exit ;; esac
done
"#;
    let path = format!("{}:/usr/bin:/bin", tools.path().display());
    let mut bench = Bench::new(0, PLAY);
    bench.sshd = Sshd::builder().env("HOME", bench.folder.path("home").to_str().unwrap()).env("PATH", &path).start();
    bench.folder.write("inventory.yaml", &bench.sshd.inventory(1)).write("work/go", "");
    let sync = tools.path().join("sync");
    std::fs::write(&sync, cut.replace("LOCKS", bench.folder.path("locks").to_str().unwrap())).unwrap();
    std::fs::set_permissions(&sync, std::fs::Permissions::from_mode(0o755)).unwrap();
    bench.run().ends(0);
    assert!(std::fs::read_to_string(tools.path().join("sync.held")).unwrap().contains("host-h1.lock"));
    assert_eq!(bench.folder.read("work/h1"), "x\n");
    assert_eq!(locks(&bench), [""; 0]);

    std::fs::remove_dir(tools.path().join("sync.cut")).unwrap();
    // One member of three is asked again later; the other two are enough to begin with.
    members(&bench).run().ends(0);
    assert_eq!(locks(&bench), [""; 0]);
}
