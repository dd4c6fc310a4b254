//! Connections and runners that go away in the middle of a command.

use std::{
    path::Path,
    process::{Child, Stdio},
    time::{Duration, Instant},
};

use rustix::process::Signal;

use super::support::{Bench, SmallDisk};
use crate::support::{descendants, signal};

/// The command goes on until the test lets it end, or takes its folder away.
const PLAY: &str = r#"
- name: Long
  hosts: all
  tasks:
    - { name: Home, file: { path: DIR, state: directory } }
    - name: Count
      shell: "echo x >>DIR/count; while test -d DIR && ! test -e DIR/go; do sleep 0.05; done; echo said"
      register: counted
    - { name: Result, copy: { dest: DIR/result, content: "{{ counted.stdout }}\n" } }
"#;

/// Until something is in the file: a shell makes it before it writes.
fn wait_for(path: &Path) {
    let deadline = Instant::now() + Duration::from_secs(20);
    while !std::fs::metadata(path).is_ok_and(|file| file.len() > 0) {
        assert!(Instant::now() < deadline, "{} never comes", path.display());
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The two ways of the host to run it: as a body of ours, and as a mere program.
fn plays() -> [String; 2] {
    let program = PLAY.replace("shell: \"", "command: \"sh -c '").replace("echo said\"", "echo said'\"");
    [PLAY.to_owned(), program]
}

/// A run whose command is under way.
fn under_way(play: &str) -> (Bench, Child) {
    let bench = Bench::new(1, play);
    let child = bench.folder.command(&["playbook", "site.yaml"]).stdout(Stdio::piped()).spawn().unwrap();
    wait_for(&bench.folder.path("work/count"));
    (bench, child)
}

fn name_of(pid: i32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default()
}

fn assert_ran_once(bench: &Bench) {
    assert_eq!(bench.folder.read("work/count"), "x\n");
    assert_eq!(bench.folder.read("work/result"), "said\n");
}

#[test]
fn a_connection_that_is_cut_neither_ends_nor_repeats_a_command() {
    for play in plays() {
        let (bench, child) = under_way(&play);
        let servers = bench.sshd.sessions().into_iter().filter(|pid| name_of(*pid).starts_with("sshd"));
        servers.for_each(|pid| signal(pid, Signal::KILL));
        bench.folder.write("work/go", "");
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stdout));
        assert_ran_once(&bench);
        assert_eq!(bench.nodes()["Long/h1/Count"], "changed");
    }
}

#[test]
fn a_command_that_still_runs_is_awaited_by_whoever_resumes() {
    for play in plays() {
        let (bench, mut child) = under_way(&play);
        child.kill().unwrap();
        child.wait().unwrap();
        let mut resumed = bench.folder.command(&["resume", "-vv"]).stdout(Stdio::piped()).spawn().unwrap();
        // It has asked the host once the folder of the run holds nothing new: only the event tells.
        wait_for_text(&mut resumed, "Count");
        bench.folder.write("work/go", "");
        assert_eq!(resumed.wait().unwrap().code(), Some(0));
        assert_ran_once(&bench);
        assert_eq!(bench.nodes()["Long/h1/Count"], "changed");
    }
}

fn wait_for_text(child: &mut Child, text: &str) {
    use std::io::{BufRead as _, BufReader};
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(text) {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "it ended without a word of {text}");
    }
    // Nobody reads the rest, and it must not block on that.
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
}

/// The process that the ledger names.
fn runner(bench: &Bench) -> i32 {
    let ledger = bench.folder.path("home/.etcdrun/runs").join(bench.run_id());
    let mut files = std::fs::read_dir(ledger).unwrap().map(|entry| entry.unwrap().path());
    let intent = files.find(|path| path.extension().is_some_and(|extension| extension == "intent")).unwrap();
    std::fs::read_to_string(intent).unwrap().split(' ').nth(1).unwrap().parse().unwrap()
}

/// The command and its runner end as in a power cut, and only their traces on the disk are left.
fn in_doubt(play: &str) -> Bench {
    let (bench, mut child) = under_way(play);
    child.kill().unwrap();
    child.wait().unwrap();
    let runner = runner(&bench);
    let family = descendants(runner);
    signal(runner, Signal::KILL);
    family.into_iter().for_each(|pid| signal(pid, Signal::KILL));
    let said = bench.resume().ends(2);
    let id = bench.run_id();
    for part in ["in doubt", "h1", "Count", &format!("etcdrun resume {id} --assume done 'Long/h1/Count'")] {
        assert!(said.stdout.contains(part), "lacks {part:?}:\n{}", said.stdout);
    }
    assert_eq!(bench.nodes()["Long/h1/Count"], "in doubt");
    let again = bench.resume().ends(2);
    assert!(again.stdout.contains("in doubt"), "it does not go away by itself:\n{}", again.stdout);
    assert_eq!(bench.folder.read("work/count"), "x\n");
    bench.folder.write("work/go", "");
    bench
}

#[test]
fn what_nobody_knows_halts_until_it_is_assumed_done() {
    let bench = in_doubt(PLAY);
    bench.folder.run(&["resume", "--assume", "done", "Long/h1/Count"]).ends(0);
    assert_eq!(bench.folder.read("work/count"), "x\n");
    assert_eq!(bench.folder.read("work/result"), "\n", "nobody knows what it said");
}

#[test]
fn what_nobody_knows_halts_until_it_is_assumed_not_run() {
    let [_, program] = plays();
    let bench = in_doubt(&program);
    let wrong = bench.folder.run(&["resume", "--assume", "not-run", "Long/h1/Cound"]).ends(5);
    assert!(wrong.stderr.contains("did you mean `Long/h1/Count`?"), "{}", wrong.stderr);
    bench.folder.run(&["resume", "--assume", "not-run", "Long/h1/Count"]).ends(0);
    assert_eq!(bench.folder.read("work/count"), "x\nx\n");
    assert_eq!(bench.folder.read("work/result"), "said\n");
}

#[test]
fn a_command_that_failed_for_certain_runs_again() {
    let bench = Bench::new(
        1,
        "- name: Fail\n  hosts: all\n  tasks:\n    - { name: Home, file: { path: DIR, state: directory } }\n    \
         - { name: Try, shell: 'echo x >>DIR/tries; test -e DIR/go' }\n",
    );
    bench.run().ends(2);
    bench.resume().ends(2);
    bench.folder.write("work/go", "");
    bench.resume().ends(0);
    assert_eq!(bench.folder.read("work/tries"), "x\nx\nx\n");
}

#[test]
fn a_detached_command_is_found_again() {
    let detached =
        PLAY.replace("      register: counted\n", "      async: 60\n      poll: 1\n      register: counted\n");
    let bench = Bench::new(1, &detached);
    let mut child = bench.folder.command(&["playbook", "site.yaml"]).stdout(Stdio::null()).spawn().unwrap();
    wait_for(&bench.folder.path("work/count"));
    child.kill().unwrap();
    child.wait().unwrap();
    bench.folder.write("work/go", "");
    bench.resume().ends(0);
    assert_ran_once(&bench);
}

#[test]
fn a_command_whose_ledger_is_taken_away_ends_in_doubt_and_leaves_nothing_behind() {
    // The second one ends the shell that would have written down how it ended.
    for command in ["echo said; rm -rf ~/.etcdrun/runs", "kill -9 $PPID"] {
        ends_in_doubt(command);
    }
}

fn ends_in_doubt(command: &str) {
    let bench = Bench::new(1, &format!("- hosts: all\n  tasks:\n    - {{ name: Careless, shell: '{command}' }}\n"));
    let said = bench.folder.run(&["playbook", "site.yaml", "-v"]);
    assert_eq!(said.code, 2, "{}\n{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("what became of it is not known"), "{}", said.stdout);
    let deadline = Instant::now() + Duration::from_secs(20);
    while bench.sshd.sessions().into_iter().any(|pid| name_of(pid).trim() == "sh") {
        assert!(Instant::now() < deadline, "a shell waits for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_ledger_is_found_where_it_was_begun_although_the_home_can_be_written_now() {
    let (bench, mut child) = {
        let bench = Bench::new(1, PLAY);
        // A file where the folder should be: the ledger goes to /var/tmp.
        std::fs::write(bench.sshd.path(".etcdrun"), "").unwrap();
        let child = bench.folder.command(&["playbook", "site.yaml"]).stdout(Stdio::piped()).spawn().unwrap();
        wait_for(&bench.folder.path("work/count"));
        (bench, child)
    };
    child.kill().unwrap();
    child.wait().unwrap();
    std::fs::remove_file(bench.sshd.path(".etcdrun")).unwrap();
    bench.folder.write("work/go", "");
    let said = bench.folder.run(&["resume"]);
    let _ = std::fs::remove_dir_all("/var/tmp/etcdrun-runs-0");
    said.ends(0);
    assert_ran_once(&bench);
}

/// The command fills the disk that the ledger is on, so that its end cannot be written down.
fn fills_the_disk() -> (Bench, SmallDisk) {
    let play = "- name: Full\n  hosts: all\n  tasks:\n    - { name: Home, file: { path: DIR, state: directory } }\n    \
         - { name: Fill, shell: 'echo x >>DIR/count; while test -d DIR && ! test -e DIR/go; do sleep 0.05; done; \
         dd if=/dev/zero of=$HOME/fill bs=4k 2>/dev/null; echo >DIR/ended' }\n";
    let bench = Bench::new(1, play);
    let disk = SmallDisk::mount(bench.folder.path("home"), "512k");
    (bench, disk)
}

#[test]
fn a_result_that_cannot_be_written_down_is_in_doubt_for_whoever_asks_later() {
    let (bench, _disk) = fills_the_disk();
    let mut child = bench.folder.command(&["playbook", "site.yaml"]).stdout(Stdio::null()).spawn().unwrap();
    wait_for(&bench.folder.path("work/count"));
    child.kill().unwrap();
    child.wait().unwrap();
    let runner = runner(&bench);
    bench.folder.write("work/go", "");
    wait_for(&bench.folder.path("work/ended"));
    let deadline = Instant::now() + Duration::from_secs(20);
    while Path::new(&format!("/proc/{runner}")).exists() {
        assert!(Instant::now() < deadline, "the runner never ends");
        std::thread::sleep(Duration::from_millis(5));
    }
    let said = bench.resume().ends(2);
    assert!(said.stdout.contains("what became of it is not known"), "{}", said.stdout);
    assert_eq!(bench.folder.read("work/count"), "x\n");
}

#[test]
fn a_result_that_cannot_be_written_down_is_never_taken_for_success() {
    let (bench, _disk) = fills_the_disk();
    bench.folder.write("work/go", "");
    let said = bench.folder.run(&["playbook", "site.yaml", "-v"]).ends(2);
    assert!(said.stdout.contains("what became of it is not known"), "{}", said.stdout);
    assert_eq!(bench.folder.read("work/count"), "x\n");
}
