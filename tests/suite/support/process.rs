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

/// Runs a command to its end, for two minutes at most. Returns what it said, and the most memory that it had at any time, in MiB.
pub fn measured(mut command: Command) -> (Output, u64) {
    let (stdout, stderr) = (tempfile::tempfile().unwrap(), tempfile::tempfile().unwrap());
    command.stdout(stdout.try_clone().unwrap()).stderr(stderr.try_clone().unwrap());
    let mut child = Group(command.spawn().unwrap());
    let status = format!("/proc/{}/status", child.pid());
    let (mut peak, deadline) = (0, std::time::Instant::now() + std::time::Duration::from_secs(120));
    let ended = loop {
        let text = std::fs::read_to_string(&status).unwrap_or_default();
        let now =
            text.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        peak = peak.max(now.unwrap_or(0) / 1024);
        if let Some(ended) = child.0.try_wait().unwrap() {
            break ended;
        }
        assert!(std::time::Instant::now() < deadline, "it has no end, with {peak} MiB: {}", whole(stderr));
        std::thread::sleep(std::time::Duration::from_millis(10));
    };
    (Output { status: ended, stdout: whole(stdout).into(), stderr: whole(stderr).into() }, peak)
}

fn whole(mut file: std::fs::File) -> String {
    use std::io::{Read as _, Seek as _};
    let mut text = String::new();
    file.rewind().unwrap();
    file.read_to_string(&mut text).unwrap();
    text
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
