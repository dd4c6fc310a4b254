//! The operator: a folder with an inventory, and the program that is run in it.

use std::{
    cell::Cell,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow};
use etcdrun_lab::Host;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Longer than anything takes that goes on: a gate waits five minutes at most, and a rollout has several.
const LIMIT: Duration = Duration::from_secs(15 * 60);
const LOOK: Duration = Duration::from_millis(2);

/// What is judged.
#[derive(Clone)]
pub struct Program {
    pub path: PathBuf,
    pub off: Option<String>,
}

pub struct Operator {
    folder: PathBuf,
    program: PathBuf,
    /// A rule or a policy that the program does without, to see whether that is noticed.
    off: Option<String>,
    /// The process whose network it has, instead of that of this machine.
    network: Option<String>,
    /// Counts what was run, so that each has files of its own for its output.
    runs: u32,
}

/// A command that is under way.
pub struct Running {
    child: Child,
    begun: Instant,
    /// Runs that were there before, and how many records the newest one had.
    known: Vec<PathBuf>,
    had: usize,
    runs: PathBuf,
    /// The journal that was counted last: how long it was, and how many records it had.
    counted: Cell<(u64, usize)>,
    pub output: PathBuf,
}

/// What a command said, and how it ended.
pub struct Said {
    /// Nothing if it was killed.
    pub code: Option<i32>,
    pub stdout: String,
    /// With the command, and with what it wrote to stderr.
    pub text: String,
    /// How many records its journal has, if it began a run.
    pub records: usize,
}

impl Operator {
    pub fn new(folder: &Path, program: &Program) -> Result<Self> {
        fs::create_dir_all(folder.join("output"))?;
        let alone = "UserKnownHostsFile none\nGlobalKnownHostsFile none\nIdentityAgent none\nIdentityFile none\n";
        fs::write(folder.join("ssh_config"), alone)?;
        let Program { path, off } = program.clone();
        Ok(Self { folder: folder.to_owned(), program: path, off, network: None, runs: 0 })
    }

    /// The operator of another machine, with a copy of all that this one knows.
    pub fn other(&self, folder: &Path) -> Result<Self> {
        if folder.exists() {
            fs::remove_dir_all(folder)?;
        }
        fs::create_dir_all(folder.join("output"))?;
        for path in entries(&self.folder) {
            if !path.ends_with("output") {
                let status = Command::new("cp").arg("-a").arg(&path).arg(folder).status()?;
                anyhow::ensure!(status.success(), "could not copy {}", path.display());
            }
        }
        let (program, off) = (self.program.clone(), self.off.clone());
        Ok(Self { folder: folder.to_owned(), program, off, network: None, runs: 0 })
    }

    /// From then on it reaches others as this host does.
    pub fn is_at(&mut self, host: &Host) -> Result<()> {
        self.network = Some(format!("--net=/proc/{}/ns/net", host.leader()?.as_raw_pid()));
        Ok(())
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    pub fn read(&self, name: &str) -> Result<String> {
        fs::read_to_string(self.path(name)).with_context(|| format!("could not read {name}"))
    }

    pub fn write(&self, name: &str, text: &str) -> Result<()> {
        fs::write(self.path(name), text).with_context(|| format!("could not write {name}"))
    }

    /// Starts a command; `variables` are for its environment.
    pub fn start(&mut self, words: &[&str], variables: &[(&str, &str)]) -> Result<Running> {
        self.runs += 1;
        let output = self.path("output").join(format!("{:03}-{}.txt", self.runs, words.first().unwrap_or(&"nothing")));
        let errors = output.with_extension("err");
        fs::write(&errors, format!("$ etcdrun {}\n", words.join(" ")))?;
        let runs = self.path(".etcdrun/runs");
        let known = entries(&runs);
        let had = known.iter().max().map_or(0, |run| count(run));
        let mut command = Command::new(if self.network.is_some() { Path::new("nsenter") } else { &self.program });
        if let Some(network) = &self.network {
            command.args([network, "--"]).arg(&self.program);
        }
        command
            .args(words)
            .current_dir(&self.folder)
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", &self.folder)
            .env("ETCDRUN_SSH_CONFIG", self.path("ssh_config"))
            .envs(variables.iter().copied())
            .envs(self.off.iter().map(|off| ("ETCDRUN_TEST_OFF", off)))
            .stdin(Stdio::null())
            .stderr(fs::File::options().append(true).open(&errors)?)
            .stdout(fs::File::create(&output)?);
        let child = command.spawn().with_context(|| format!("could not start {}", self.program.display()))?;
        Ok(Running { child, begun: Instant::now(), known, had, runs, counted: Cell::default(), output })
    }

    /// Runs a command to its end.
    pub fn run(&mut self, words: &[&str]) -> Result<Said> {
        self.start(words, &[])?.wait()
    }

    /// The same, for commands that have to succeed.
    pub fn must(&mut self, words: &[&str]) -> Result<Said> {
        let said = self.run(words)?;
        match said.code {
            Some(0) => Ok(said),
            code => Err(anyhow!("`etcdrun {}` ended with {code:?}:\n{}", words.join(" "), said.text)),
        }
    }
}

impl Said {
    /// The document that it printed.
    pub fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| format!("this is not JSON:\n{}", self.text))
    }
}

impl Running {
    /// The records in the journal of the run that it has begun, none before it has; or those that it has added to the newest one.
    pub fn records(&self) -> usize {
        let runs = entries(&self.runs);
        match runs.iter().find(|run| !self.known.contains(run)) {
            Some(new) => self.count(new),
            None => runs.iter().max().map_or(0, |run| self.count(run)).saturating_sub(self.had),
        }
    }

    /// This is asked hundreds of times a second, and a journal that has not grown has no more records.
    fn count(&self, run: &Path) -> usize {
        let length = fs::metadata(run.join("journal")).map_or(0, |journal| journal.len());
        if self.counted.get().0 != length {
            self.counted.set((length, count(run)));
        }
        self.counted.get().1
    }

    /// Whether it has ended, or is given up.
    pub fn is_over(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_some() || self.begun.elapsed() > LIMIT)
    }

    /// Stops it where it is, or lets it go on.
    pub fn sleep(&self, sleeps: bool) -> Result<()> {
        let signal = if sleeps { Signal::STOP } else { Signal::CONT };
        let process = Pid::from_raw(i32::try_from(self.child.id())?).context("it has no id")?;
        // It may have ended.
        let _ = kill_process(process, signal);
        Ok(())
    }

    /// As a power cut would.
    pub fn kill(&mut self) -> Result<()> {
        Ok(self.child.kill()?)
    }

    /// Waits for its end. A command that has none is killed, and that is an error.
    pub fn wait(mut self) -> Result<Said> {
        let status = loop {
            if let Some(status) = self.child.try_wait()? {
                break status;
            }
            if self.begun.elapsed() > LIMIT {
                self.child.kill()?;
                self.child.wait()?;
                return Err(anyhow!("it hangs: no end after {LIMIT:?}; see {}", self.output.display()));
            }
            sleep(LOOK * 5);
        };
        self.said(status)
    }

    fn said(&self, status: ExitStatus) -> Result<Said> {
        let stdout = fs::read_to_string(&self.output)?;
        let text = fs::read_to_string(self.output.with_extension("err"))? + &stdout;
        Ok(Said { code: status.code(), stdout, text, records: self.records() })
    }
}

/// How many records a run has.
fn count(run: &Path) -> usize {
    let journal = fs::read(run.join("journal")).unwrap_or_default();
    journal.iter().filter(|byte| **byte == b'\n').count()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}
