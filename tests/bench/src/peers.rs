//! The other tools: each installed by pip into a virtual environment of its own, in the version that `peers/requirements` names. It
//! stays for the next bench. One that cannot be had takes no other with it.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, anyhow, ensure};

use crate::process::{Took, measure, run};

/// The folder with our small scripts for them.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");
/// Hosts that each of them works on at once; `ansible.cfg` says it for Ansible.
pub const AT_ONCE: usize = 50;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Peer {
    Asyncssh,
    ParallelSsh,
    ClusterShell,
    Pyinfra,
    Mitogen,
    Ansible,
}

impl Peer {
    pub const ALL: [Self; 6] =
        [Self::Asyncssh, Self::ParallelSsh, Self::ClusterShell, Self::Pyinfra, Self::Mitogen, Self::Ansible];

    pub fn name(self) -> &'static str {
        match self {
            Self::Asyncssh => "asyncssh",
            Self::ParallelSsh => "parallel-ssh",
            Self::ClusterShell => "ClusterShell",
            Self::Pyinfra => "pyinfra",
            Self::Mitogen => "Ansible with Mitogen",
            Self::Ansible => "Ansible",
        }
    }

    /// Its file of requirements.
    fn file(self) -> &'static str {
        match self {
            Self::Asyncssh => "asyncssh",
            Self::ParallelSsh => "parallel-ssh",
            Self::ClusterShell => "clustershell",
            Self::Pyinfra => "pyinfra",
            Self::Mitogen => "mitogen",
            Self::Ansible => "ansible",
        }
    }
}

pub struct Peers {
    /// Where virtual environments are.
    folder: PathBuf,
    /// For sockets, whose paths must be short.
    sockets: tempfile::TempDir,
    log: PathBuf,
    /// The virtual environment of each that was asked for, or why there is none.
    had: BTreeMap<Peer, Result<PathBuf, String>>,
}

impl Peers {
    /// They are installed into the one folder, and what they say is in the other.
    pub fn new(folder: &Path, work: &Path) -> Result<Self> {
        let sockets = tempfile::Builder::new().prefix("bench-").tempdir()?;
        Ok(Self { folder: folder.to_owned(), sockets, log: work.join("peer.log"), had: BTreeMap::new() })
    }

    /// Installs it if that was not tried yet. Why it cannot be had, if so.
    pub fn missing(&mut self, peer: Peer) -> Result<Option<String>> {
        if !self.had.contains_key(&peer) {
            let venv = self.folder.join(peer.file());
            let had = install(&venv, peer).map(|()| venv).map_err(|error| format!("{error:#}"));
            if let Err(reason) = &had {
                // Whoever ended the bench has not asked for a table without this one.
                ensure!(!reason.contains(crate::process::INTERRUPTED), "{reason}");
                eprintln!("  not measured: {reason}");
            }
            self.had.insert(peer, had);
        }
        Ok(self.had[&peer].as_ref().err().cloned())
    }

    fn venv(&self, peer: Peer) -> Result<&Path> {
        let had = self.had.get(&peer).with_context(|| format!("{} is not installed", peer.name()))?;
        had.as_deref().map_err(|reason| anyhow!("{reason}"))
    }

    pub fn python(&self, peer: Peer) -> Result<PathBuf> {
        Ok(self.venv(peer)?.join("bin/python3"))
    }

    /// A folder for sockets that no earlier run had: each run makes connections of its own.
    pub fn fresh_sockets(&self) -> Result<tempfile::TempDir> {
        Ok(tempfile::tempdir_in(self.sockets.path())?)
    }

    /// A script of ours for a library.
    pub fn script(&self, peer: Peer, script: &str, mode: &str, job: &Path) -> Result<Took> {
        let script = Path::new(SCRIPTS).join(script);
        measure(Command::new(self.python(peer)?).arg(script).arg(mode).arg(job), &self.log)
    }

    pub fn pyinfra(&self, script: &str, job: &Path) -> Result<Took> {
        let mut command = Command::new(self.venv(Peer::Pyinfra)?.join("bin/pyinfra"));
        command.args(["--parallel", &AT_ONCE.to_string(), "-y"]).arg(Path::new(SCRIPTS).join("pyinfra_inventory.py"));
        command.arg(Path::new(SCRIPTS).join(script)).env("BENCH_JOB", job).current_dir(self.sockets.path());
        measure(&mut command, &self.log)
    }

    /// Forks, pipelining and the rest are in `ansible.cfg`; Mitogen takes Ansible's place behind them.
    pub fn ansible(&self, peer: Peer, inventory: &Path, playbook: &Path) -> Result<Took> {
        let (venv, sockets) = (self.venv(peer)?, self.fresh_sockets()?);
        let home = self.sockets.path().join("home");
        fs::create_dir_all(&home)?;
        let mut command = Command::new(venv.join("bin/ansible-playbook"));
        command.arg("-i").arg(inventory).arg(playbook).env("ANSIBLE_CONFIG", Path::new(SCRIPTS).join("ansible.cfg"));
        command.env("ANSIBLE_SSH_CONTROL_PATH_DIR", sockets.path()).env("ANSIBLE_HOME", home);
        if peer == Peer::Mitogen {
            command.env("ANSIBLE_STRATEGY", "mitogen_linear").env("ANSIBLE_STRATEGY_PLUGINS", strategies(venv)?);
        }
        measure(&mut command, &self.log)
    }
}

/// Nothing is done where the same was installed before.
fn install(venv: &Path, peer: Peer) -> Result<()> {
    let file = Path::new(SCRIPTS).join("requirements").join(peer.file()).with_extension("txt");
    let (wanted, installed) = (fs::read(&file)?, venv.join("installed.txt"));
    if fs::read(&installed).is_ok_and(|is| is == wanted) {
        return Ok(());
    }
    eprintln!("installing {}", peer.name());
    let made = run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(venv));
    let needs = "the peers need python3 with venv: apt-get install python3-venv";
    ensure!(made.context(needs)?.success(), needs);
    let mut pip = Command::new(venv.join("bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check", "--no-input", "--progress-bar", "off"]);
    ensure!(run(pip.arg("--requirement").arg(file))?.success(), "pip cannot install {}", peer.name());
    Ok(fs::write(installed, wanted)?)
}

/// Where Mitogen's strategies are.
fn strategies(venv: &Path) -> Result<PathBuf> {
    for version in fs::read_dir(venv.join("lib"))? {
        let folder = version?.path().join("site-packages/ansible_mitogen/plugins/strategy");
        if folder.is_dir() {
            return Ok(folder);
        }
    }
    Err(anyhow!("Mitogen has no strategies in {}", venv.display()))
}
