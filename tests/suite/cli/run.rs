//! The program against a real sshd: what it prints, and how it ends.
use std::{
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use crate::support::{Sshd, TempUser, program::Folder, signal, wait_until};
use serde_json::Value;

const PLAYBOOK: &str = r#"
- name: Greet
  hosts: all
  tasks:
    - name: Write a greeting
      copy: { dest: "FOLDER/{{ inventory_hostname }}", content: "hello {{ who }}\n", mode: "0600" }
      notify: Tell
  handlers:
    - name: Tell
      command: cat FOLDER/{{ inventory_hostname }}
"#;

fn greeting(hosts: usize) -> (Sshd, Folder) {
    let sshd = Sshd::start();
    let folder = Folder::with_hosts(&sshd, hosts);
    folder.write("site.yaml", &PLAYBOOK.replace("FOLDER", &folder.path("").display().to_string()));
    (sshd, folder)
}

fn events(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{e}: {line}"))).collect()
}

#[test]
fn a_playbook_changes_things_once() {
    let (_sshd, folder) = greeting(2);
    let run = ["playbook", "site.yaml", "-e", "who=world"];
    let first = folder.run(&run).ends(0);
    assert_eq!(folder.read("h2"), "hello world\n");
    assert!(first.stdout.contains("changed     h1  Tell (handler)"), "{}", first.stdout);
    assert!(!first.stdout.contains('\x1b'), "clean lines in a pipe");
    let second = folder.run(&run).ends(0);
    assert!(second.stdout.contains("ok          h1  Write a greeting"), "{}", second.stdout);
    assert!(!second.stdout.contains("handler"), "{}", second.stdout);
}

#[test]
fn check_mode_predicts_and_changes_nothing() {
    let (_sshd, folder) = greeting(1);
    let said = folder.run(&["playbook", "site.yaml", "-e", "who=world", "-C", "-D"]).ends(0);
    assert!(said.stdout.contains("+hello world"), "{}", said.stdout);
    assert!(!folder.path("h1").exists());
}

#[test]
fn json_is_one_event_a_line() {
    let (_sshd, folder) = greeting(2);
    let events = events(&folder.run(&["playbook", "./site.yaml", "-e", "who=you", "--json"]).ends(0).stdout);
    assert_eq!((&events[0]["event"], &events[0]["version"]), (&"run_started".into(), &1.into()));
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["result"]), (&"run_finished".into(), &"success".into()));
    let changed = events.iter().filter(|event| event["status"] == "changed").count();
    assert_eq!(changed, 4, "two files, two handlers");
}

#[test]
fn a_failure_tells_host_task_place_and_words() {
    let sshd = Sshd::start();
    let folder = Folder::with_hosts(&sshd, 2);
    folder.write(
        "site.yaml",
        "- name: Fail\n  hosts: all\n  tasks:\n    - name: Break\n      shell: echo no space left on device >&2; exit 7\n      when: inventory_hostname == 'h1'\n    - name: After\n      command: 'true'\n",
    );
    let said = folder.run(&["playbook", "site.yaml"]).ends(2);
    for part in [
        "failed      h1  Break",
        "site.yaml:4",
        "no space left on device",
        "df -h",
        "1 task on h1, because “Break” failed",
    ] {
        assert!(said.stdout.contains(part), "lacks {part:?}:\n{}", said.stdout);
    }
}

#[test]
fn an_unreachable_host_has_its_own_code() {
    let (mut sshd, folder) = greeting(1);
    sshd.kill();
    let said = folder.run(&["playbook", "site.yaml", "-e", "who=you", "-T", "2"]).ends(4);
    assert!(said.stdout.contains("unreachable h1"), "{}", said.stdout);
}

#[test]
fn exec_shows_output_by_host() {
    let sshd = Sshd::start();
    let folder = Folder::with_hosts(&sshd, 2);
    let said = folder.run(&["exec", "all", "--", "echo", "two  blanks", "{{ inventory_hostname }}"]).ends(0);
    assert!(said.stdout.contains("h2 | CHANGED | rc=0 >>\ntwo  blanks h2\n"), "{}", said.stdout);
    let said = folder.run(&["exec", "h1", "--shell", "echo $((6 * 7)); exit 3"]).ends(2);
    assert!(said.stdout.contains("h1 | FAILED | rc=3 >>") && said.stdout.contains("42"), "{}", said.stdout);
    let said = folder.run(&["exec", "h1", "-v", "--", "echo", "live"]).ends(0);
    assert!(said.stdout.starts_with("h1 | live\n"), "{}", said.stdout);
    assert!(!said.stdout.contains("\nlive\n"), "it was shown as it came:\n{}", said.stdout);
    let said = folder.run(&["exec", "h1", "-m", "ping"]).ends(0);
    assert!(said.stdout.contains("h1 | SUCCESS >>") && said.stdout.contains("pong"), "{}", said.stdout);
    let dest = folder.path("made").display().to_string();
    folder.run(&["exec", "h1", "-m", "file", "-a", &format!("path={dest} state=directory")]).ends(0);
    assert!(folder.path("made").is_dir());
    assert!(folder.run(&["exec", "h1", "-m", "fiel"]).ends(5).stderr.contains("did you mean `file`?"));
}

#[test]
fn a_closed_pipe_does_not_stop_the_run() {
    let (_sshd, folder) = greeting(3);
    let mut child = folder.command(&["playbook", "site.yaml", "-e", "who=you"]).stdout(Stdio::piped()).spawn().unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    assert_eq!(folder.read("h3"), "hello you\n");
}

/// Starts a run of a long command and returns once the command is running.
fn long_run(folder: &Folder) -> (Child, BufReader<impl Read>) {
    let mut command = folder.command(&["playbook", "site.yaml", "--json"]);
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains("node_output") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended before the command ran");
    }
    (child, lines)
}

fn long_playbook(folder: &Folder) {
    let (home, release) = (folder.path(""), folder.path("release"));
    // A test that ends takes the folder with it, and the command must not outlive that.
    let wait = "echo begun; while test -d HOME && ! test -e RELEASE; do sleep 0.05; done";
    let wait = wait.replace("HOME", &home.display().to_string()).replace("RELEASE", &release.display().to_string());
    folder.write(
        "site.yaml",
        &format!("- name: Wait\n  hosts: all\n  tasks:\n    - name: Long\n      shell: {wait:?}\n    - name: After\n      command: 'true'\n"),
    );
}

#[test]
fn the_first_interrupt_lets_running_tasks_end() {
    let sshd = Sshd::with_own_tmp();
    let folder = Folder::with_hosts(&sshd, 1);
    long_playbook(&folder);
    let (mut child, mut lines) = long_run(&folder);
    signal(i32::try_from(child.id()).unwrap(), rustix::process::Signal::INT);
    let mut line = String::new();
    while !line.contains("\"interrupted\"") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended without a word");
    }
    wait_until(|| sshd.stop_requests() == 1);
    folder.write("release", "");
    let mut rest = String::new();
    lines.read_to_string(&mut rest).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    let events = events(&rest);
    let status = |task: &str| {
        let ended = |event: &&Value| event["event"] == "node_finished" && event["node"]["task"] == task;
        events.iter().find(ended).map(|event| event["status"].clone())
    };
    assert_eq!(status("Long"), Some("changed".into()), "what ran has ended well");
    assert_eq!(status("After"), Some("not_run".into()));
    assert_eq!(events.last().unwrap()["result"], "interrupted");
}

#[test]
fn the_second_interrupt_leaves_at_once() {
    let sshd = Sshd::start();
    let folder = Folder::with_hosts(&sshd, 1);
    long_playbook(&folder);
    let (mut child, mut lines) = long_run(&folder);
    let pid = i32::try_from(child.id()).unwrap();
    signal(pid, rustix::process::Signal::TERM);
    let mut line = String::new();
    while !line.contains("\"interrupted\"") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended without a word");
    }
    signal(pid, rustix::process::Signal::INT);
    assert_eq!(child.wait().unwrap().code(), Some(130));
    folder.write("release", "");
}

/// A rule for sudo that goes away with the test.
struct Sudoers(PathBuf);

impl Drop for Sudoers {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn sudo_takes_the_password_of_the_file_and_asks_for_it_otherwise() {
    let user = TempUser::create();
    user.set_password("open sesame");
    let rule = Sudoers(Path::new("/etc/sudoers.d").join(&user.name));
    std::fs::write(&rule.0, format!("{} ALL=(ALL) ALL\n", user.name)).unwrap();
    let sshd = Sshd::builder().user(&user.name).start();
    let folder = Folder::with_hosts(&sshd, 1);
    folder.write_private("password", "open sesame\n").write_private("wrong", "shut sesame\n");
    let run = |more: &[&str]| folder.run(&[&["exec", "h1", "-b"], more, &["--", "id", "-un"]].concat());
    assert!(run(&["--become-password-file", "password"]).ends(0).stdout.contains("rc=0 >>\nroot\n"));
    assert!(run(&[]).ends(2).stdout.contains("pass -K to be prompted for the sudo password"), "a hint");
    run(&["--become-password-file", "wrong"]).ends(2);
}

#[test]
fn a_password_file_must_be_there() {
    let (_sshd, folder) = greeting(1);
    let said = folder.run(&["playbook", "site.yaml", "-e", "who=x", "--become-password-file", "nope"]).ends(5);
    assert!(said.stderr.contains("nope"), "{}", said.stderr);
}

#[test]
fn the_folder_of_a_playbook_is_absolute() {
    let folder = Folder::new();
    folder.write("inventory.yaml", "hosts: { h1: {} }\n").write(
        "play.yaml",
        "- hosts: all\n  tasks:\n    - copy: { dest: '{{ playbook_dir }}/made', content: here }\n      on: operator\n",
    );
    folder.run(&["playbook", "play.yaml"]).ends(0);
    assert_eq!(folder.read("made"), "here");
}
