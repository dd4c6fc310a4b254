//! Locks that somebody breaks.

use std::process::Stdio;

use super::{
    locks::{PLAY, ends, locks, start, wait_for},
    support::Bench,
};

/// A run that is in the midst of its first command.
fn under_way(more: &[&str]) -> (Bench, std::process::Child) {
    let bench = Bench::new(1, PLAY);
    let run = start(&bench, more);
    wait_for(&bench, "work/h1");
    (bench, run)
}

/// The id of the run that holds the lock of h1.
fn holder(bench: &Bench) -> String {
    let lock = bench.folder.read("locks/host-h1.lock");
    lock.lines().next().unwrap().split(' ').nth(1).unwrap().to_owned()
}

#[test]
fn a_run_whose_lock_was_broken_changes_nothing_more() {
    let (bench, first) = under_way(&[]);
    let id = bench.run_id();
    let said = bench.folder.run(&["unlock", &id]).ends(6);
    assert!(said.stderr.contains("is active"), "{}", said.stderr);
    assert_eq!(locks(&bench), ["host-h1.lock"]);
    let said = bench.folder.run(&["unlock", &id, "--force", "--wait", "0"]).ends(6);
    assert!(said.stdout.contains("h1: 1 broken; process "), "{}", said.stdout);
    assert!(said.stdout.contains("still runs"), "{}", said.stdout);
    assert_eq!(locks(&bench), [""; 0]);
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
fn what_the_run_is_at_is_awaited() {
    let (bench, first) = under_way(&[]);
    let id = bench.run_id();
    let breaking = bench.folder.command(&["unlock", &id, "--force"]).stdout(Stdio::piped()).spawn().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    // The folder for it is made a moment before the lock is moved there.
    while locks(&bench).iter().any(|name| name.ends_with(".lock")) {
        assert!(std::time::Instant::now() < deadline, "nothing is broken");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    bench.folder.write("work/go", "");
    let said = ends(breaking, 0);
    assert_eq!(said, "h1: 1 broken\n");
    assert_eq!(locks(&bench), [""; 0]);
    ends(first, 6);
}

#[test]
fn what_the_run_is_at_is_ended_if_that_is_asked_for() {
    let (bench, first) = under_way(&[]);
    let said = bench.folder.run(&["unlock", &bench.run_id(), "--force", "--wait", "1", "--end"]).ends(0);
    assert!(said.stdout.contains("still runs: it is ended"), "{}", said.stdout);
    let said = ends(first, 2);
    assert!(said.contains("in doubt"), "{said}");
    assert!(!bench.folder.path("work/second-h1").exists());
}

#[test]
fn a_run_of_another_state_folder_is_known_to_be_alive() {
    let (bench, first) = under_way(&["--state-dir", "elsewhere"]);
    let id = holder(&bench);
    for more in [&[][..], &["--state-dir", "elsewhere"]] {
        let said = bench.folder.run(&[&["unlock", &id], more].concat()).ends(6);
        assert!(said.stderr.contains("is active"), "{}", said.stderr);
    }
    assert_eq!(locks(&bench), ["host-h1.lock"]);
    bench.folder.write("work/go", "");
    ends(first, 0);
}

#[test]
fn a_run_of_another_machine_needs_force() {
    let (bench, mut first) = under_way(&["--state-dir", "elsewhere"]);
    first.kill().unwrap();
    first.wait().unwrap();
    let (id, lock) = (holder(&bench), bench.folder.read("locks/host-h1.lock"));
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    bench.folder.write("locks/host-h1.lock", &lock.replace(name.trim(), "another-machine"));
    let said = bench.folder.run(&["unlock", &id]).ends(6);
    assert!(said.stderr.contains("its state cannot be checked from here"), "{}", said.stderr);
    let said = bench.folder.run(&["unlock", &id, "--force", "--check"]).ends(0);
    assert_eq!(said.stdout, "h1: would be broken\n");
    assert_eq!(locks(&bench), ["host-h1.lock"]);
    bench.folder.write("work/go", "");
    bench.folder.run(&["unlock", &id, "--force"]).ends(0);
    assert_eq!(locks(&bench), [""; 0]);
}

#[test]
fn a_host_that_cannot_be_asked_keeps_all_locks_from_being_broken() {
    let (bench, mut first) = under_way(&[]);
    first.kill().unwrap();
    first.wait().unwrap();
    let id = bench.run_id();
    let inventory = bench.folder.read("inventory.yaml");
    bench.folder.write("inventory.yaml", &format!("{inventory}  h2: {{ address: 127.0.1.2, port: 1 }}\n"));
    let said = bench.folder.run(&["unlock", &id]).ends(4);
    assert!(said.stdout.contains("h2: unreachable") && said.stdout.contains("no lock was broken"), "{}", said.stdout);
    assert_eq!(locks(&bench), ["host-h1.lock"]);
    bench.folder.write("work/go", "");
    bench.folder.run(&["unlock", &id, "--limit", "h1"]).ends(0);
    assert_eq!(locks(&bench), [""; 0]);
}

#[test]
fn a_run_that_goes_on_holds_its_lock_as_the_new_process() {
    let (bench, mut first) = under_way(&[]);
    first.kill().unwrap();
    first.wait().unwrap();
    let id = bench.run_id();
    let before = bench.folder.read("locks/host-h1.lock");
    let resumed = bench.folder.command(&["resume", &id]).stdout(Stdio::piped()).spawn().unwrap();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while bench.folder.read("locks/host-h1.lock") == before {
        assert!(std::time::Instant::now() < deadline, "the lock stays that of a dead process");
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let said = bench.run().ends(6);
    assert!(said.stdout.contains("it is still active"), "{}", said.stdout);
    bench.folder.write("work/go", "");
    ends(resumed, 0);
}

#[test]
fn no_file_is_sent_any_more_either() {
    let (bench, tmp) = Bench::with_own_tmp(1, &PLAY.replace("shell: \"echo {{ first.rc }} >>", "script: \"sent.sh "));
    bench.folder.write("sent.sh", "#!/bin/sh\ntouch \"$1\"\n");
    let first = start(&bench, &[]);
    wait_for(&bench, "work/h1");
    bench.folder.run(&["unlock", &bench.run_id(), "--force", "--wait", "0"]).ends(6);
    // Whoever still sends a file finds no place to put it.
    std::fs::remove_dir_all(&tmp).unwrap();
    std::fs::write(&tmp, "").unwrap();
    bench.folder.write("work/go", "");
    let said = ends(first, 6);
    assert!(said.contains("no longer held by this run") && !said.contains("upload"), "{said}");
}
