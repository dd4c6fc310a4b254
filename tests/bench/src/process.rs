//! Runs a program to its end, and keeps how long that took and how much memory it held at most. Whoever ends the
//! bench by a signal ends that program too, and all else that the bench has started.

use std::{
    ffi::OsString,
    fs::{self, File},
    os::unix::process::CommandExt as _,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Mutex, PoisonError,
        mpsc::{self, RecvTimeoutError},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::signal::unix::{SignalKind, signal};

/// No work takes longer than that; what does is ended.
const LIMIT: Duration = Duration::from_secs(900);
const GLANCE: Duration = Duration::from_millis(10);
const PAUSE: Duration = Duration::from_millis(100);
/// How long a program may take to end when it is told to.
const GRACE: Duration = Duration::from_secs(3);
/// How nice a session is to others (autogroup): as much as can be.
const LAST: &str = "19";
/// How the work fails that a signal has ended.
pub const INTERRUPTED: &str = "interrupted";

#[derive(Clone, Copy, Debug)]
pub struct Took {
    pub seconds: f64,
    /// The most memory that was resident, in MiB.
    pub memory: f64,
}

/// What runs now, and whether nothing more may.
struct Current {
    group: Option<Pid>,
    interrupted: bool,
}

static CURRENT: Mutex<Current> = Mutex::new(Current { group: None, interrupted: false });

fn with<T>(work: impl FnOnce(&mut Current) -> T) -> T {
    work(&mut CURRENT.lock().unwrap_or_else(PoisonError::into_inner))
}

/// From now on a signal that would end us ends what runs. Then the work fails, and all that was started is tidied up.
pub fn heed_signals() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
    let [mut interrupt, mut terminate, mut hangup] = {
        let _guard = runtime.enter();
        [signal(kinds[0])?, signal(kinds[1])?, signal(kinds[2])?]
    };
    thread::spawn(move || {
        runtime.block_on(async {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                let group = with(|current| {
                    current.interrupted = true;
                    current.group
                });
                if let Some(group) = group {
                    end(group, Signal::TERM);
                    tokio::time::sleep(GRACE).await;
                    with(|current| current.group.filter(|now| *now == group).map(|group| end(group, Signal::KILL)));
                }
            }
        });
    });
    Ok(())
}

/// Starts it, which leads a group or is about to, unless somebody has ended us.
fn spawn(command: &mut Command) -> Result<(Child, Pid)> {
    with(|current| {
        ensure!(!current.interrupted, "{INTERRUPTED}");
        let child = command.spawn().with_context(|| format!("cannot run {:?}", command.get_program()))?;
        let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("a process id")?;
        current.group = Some(group);
        Ok((child, group))
    })
}

fn wait(mut child: Child) -> Result<ExitStatus> {
    let status = child.wait();
    with(|current| {
        current.group = None;
        ensure!(!current.interrupted, "{INTERRUPTED}");
        Ok(status?)
    })
}

/// Runs it to its end.
pub fn run(command: &mut Command) -> Result<ExitStatus> {
    let (child, _) = spawn(command.stdin(Stdio::null()).process_group(0))?;
    wait(child)
}

/// Waits so long, unless somebody ends us.
pub fn pause(length: Duration) -> Result<()> {
    let started = Instant::now();
    while let Some(left) = length.checked_sub(started.elapsed()) {
        ensure!(!with(|current| current.interrupted), "{INTERRUPTED}");
        thread::sleep(left.min(PAUSE));
    }
    Ok(())
}

/// Runs it; what it says goes to the file `log`. Fails if it does.
pub fn measure(command: &mut Command, log: &Path) -> Result<Took> {
    measure_leader(command.process_group(0), log)
}

/// The same in a session of its own, and whoever else wants a processor has it first (autogroup): members and their clients are
/// not on the operator's machine in life, so what it calculates is nothing to them.
pub fn measure_behind(command: &Command, log: &Path) -> Result<Took> {
    let mut behind = Command::new(std::env::current_exe()?);
    behind.arg("behind").arg(command.get_program()).args(command.get_args());
    behind.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    if let Some(folder) = command.get_current_dir() {
        behind.current_dir(folder);
    }
    measure_leader(&mut behind, log)
}

/// The other side of that.
pub fn step_behind(program: &Path, words: &[OsString]) -> Result<()> {
    rustix::process::setsid()?;
    let group = Path::new("/proc/self/autogroup");
    if group.exists() {
        fs::write(group, LAST).context("cannot say how nice this session is")?;
    }
    Err(Command::new(program).args(words).exec().into())
}

fn measure_leader(command: &mut Command, log: &Path) -> Result<Took> {
    let out = File::create(log)?;
    command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    let started = Instant::now();
    let (child, pid) = spawn(command)?;
    let (sender, ended) = mpsc::channel();
    let watch = thread::spawn(move || watch(pid, started, &ended));
    let status = wait(child)?;
    let seconds = started.elapsed().as_secs_f64();
    drop(sender);
    // Nothing that it has left running takes time from what is measured next.
    end(pid, Signal::TERM);
    let memory = watch.join().unwrap_or_default();
    if !status.success() {
        let said = fs::read_to_string(log).unwrap_or_default();
        let tail: Vec<_> = said.lines().rev().take(30).collect();
        bail!("{command:?} failed ({status}):\n{}", tail.into_iter().rev().collect::<Vec<_>>().join("\n"));
    }
    Ok(Took { seconds, memory })
}

/// Looks at the process's high-water mark until it ends, and ends it if that takes too long.
fn watch(pid: Pid, started: Instant, ended: &mpsc::Receiver<()>) -> f64 {
    let mut most = 0.0;
    loop {
        most = resident(&pid.as_raw_nonzero().to_string()).unwrap_or(most);
        match ended.recv_timeout(GLANCE) {
            Err(RecvTimeoutError::Timeout) if started.elapsed() < LIMIT => {}
            Err(RecvTimeoutError::Timeout) => {
                end(pid, Signal::KILL);
                return most;
            }
            _ => return most,
        }
    }
}

fn end(group: Pid, how: Signal) {
    // All of it may have ended by itself meanwhile.
    let _ = kill_process_group(group, how);
}

/// The most that a process ever had in memory, in MiB.
pub fn resident(pid: &str) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: f64 = line.trim().trim_end_matches("kB").trim().parse().ok()?;
    Some(kilobytes / 1024.0)
}
