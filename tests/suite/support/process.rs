//! Processes of the tests: started here, and ended by their own ids.

use std::process::{Child, Command, Output};

use rustix::process::{Pid, Signal};

/// Runs a command to its end. Panics with its words if it fails.
pub fn run(program: &str, arguments: &[&str]) -> Output {
    let output =
        Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    assert!(
        output.status.success(),
        "{program} {arguments:?} failed: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    output
}

pub fn signal(pid: i32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid) {
        let _ = rustix::process::kill_process(pid, signal);
    }
}

/// Children, grandchildren and so on, nearest first.
pub fn descendants(pid: i32) -> Vec<i32> {
    let all: Vec<(i32, i32)> = std::fs::read_dir("/proc")
        .expect("/proc is mounted")
        .filter_map(|entry| {
            let pid = entry.ok()?.file_name().to_str()?.parse().ok()?;
            Some((pid, parent_of(pid)?))
        })
        .collect();
    let mut found = vec![pid];
    let mut next = 0;
    while next < found.len() {
        let parent = found[next];
        found.extend(all.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    found.split_off(1)
}

fn parent_of(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command's name stands in brackets and may itself hold blanks and brackets.
    let after_name = stat.rsplit_once(')')?.1;
    after_name.split_whitespace().nth(1)?.parse().ok()
}

/// A child process that ends, with everything it started, when this goes out of scope.
pub struct Group(pub Child);

impl Group {
    pub fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).expect("a process id fits")
    }

    pub fn kill(&mut self) {
        // Found before the parent dies: afterwards nothing would lead to them.
        let family = descendants(self.pid());
        signal(self.pid(), Signal::KILL);
        for pid in family {
            signal(pid, Signal::CONT);
            signal(pid, Signal::KILL);
        }
        let _ = self.0.wait();
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            self.kill();
        }
    }
}

/// Waits for what is sure to come.
pub fn wait_until(condition: impl Fn() -> bool) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !condition() {
        assert!(std::time::Instant::now() < deadline, "waited too long");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
