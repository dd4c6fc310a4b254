//! Runs a program to its end, and keeps how long that took and how much memory it held at most.

use std::{
    fs::{self, File},
    path::Path,
    process::{Command, Stdio},
    sync::mpsc::{self, RecvTimeoutError},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail};

/// No work takes longer than that; what does is ended.
const LIMIT: Duration = Duration::from_secs(900);
const GLANCE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, Debug)]
pub struct Took {
    pub seconds: f64,
    /// The most memory that was resident, in MiB.
    pub memory: f64,
}

/// Runs it; what it says goes to the file `log`. Fails if it does.
pub fn measure(command: &mut Command, log: &Path) -> Result<Took> {
    let out = File::create(log)?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let started = Instant::now();
    let mut child = command.spawn().with_context(|| format!("cannot run {:?}", command.get_program()))?;
    let pid = child.id();
    let (sender, ended) = mpsc::channel();
    let watch = thread::spawn(move || watch(pid, started, &ended));
    let status = child.wait()?;
    let seconds = started.elapsed().as_secs_f64();
    drop(sender);
    let memory = watch.join().unwrap_or_default();
    if !status.success() {
        let said = fs::read_to_string(log).unwrap_or_default();
        let tail: Vec<_> = said.lines().rev().take(30).collect();
        bail!("{command:?} failed ({status}):\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    Ok(Took { seconds, memory })
}

/// Looks at the process's high-water mark until it ends, and ends it if that takes too long.
fn watch(pid: u32, started: Instant, ended: &mpsc::Receiver<()>) -> f64 {
    let mut most = 0.0;
    loop {
        most = resident(&pid.to_string()).unwrap_or(most);
        match ended.recv_timeout(GLANCE) {
            Err(RecvTimeoutError::Timeout) if started.elapsed() < LIMIT => {}
            Err(RecvTimeoutError::Timeout) => {
                end(pid);
                return most;
            }
            _ => return most,
        }
    }
}

fn end(pid: u32) {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(pid) = pid {
        // It is not reaped yet, so the id is still its own.
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
}

/// The most that a process ever had in memory, in MiB.
pub fn resident(pid: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes / 1024.0)
}
