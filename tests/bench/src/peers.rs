//! The other tools: installed into a throw-away place, each in the version that `requirements.txt` names.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::process::{Took, measure, run};

/// The folder with our small scripts for them.
const SCRIPTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/peers");

pub struct Peers {
    venv: PathBuf,
    /// For sockets, whose paths must be short.
    sockets: tempfile::TempDir,
    log: PathBuf,
}

impl Peers {
    /// Installs them with pip, which takes a minute.
    pub fn install(folder: &Path) -> Result<Self> {
        let venv = folder.join("venv");
        eprintln!("installing the peers");
        let made = run(Command::new("python3").args(["-m", "venv"]).arg(&venv));
        let needs = "the peers need python3 with venv: apt-get install python3-venv";
        ensure!(made.context(needs)?.success(), needs);
        let installed = run(Command::new(venv.join("bin/pip"))
            .args(["install", "--quiet", "--disable-pip-version-check", "--requirement"])
            .arg(Path::new(SCRIPTS).join("requirements.txt")))?;
        ensure!(installed.success(), "pip cannot install the peers");
        let sockets = tempfile::Builder::new().prefix("bench-").tempdir()?;
        Ok(Self { venv, sockets, log: folder.join("peer.log") })
    }

    pub fn python(&self) -> PathBuf {
        self.venv.join("bin/python3")
    }

    pub fn asyncssh(&self, mode: &str, job: &Path) -> Result<Took> {
        let script = Path::new(SCRIPTS).join("asyncssh_run.py");
        measure(Command::new(self.python()).arg(script).arg(mode).arg(job), &self.log)
    }

    pub fn pyinfra(&self, script: &str, job: &Path) -> Result<Took> {
        let mut command = Command::new(self.venv.join("bin/pyinfra"));
        command.args(["--parallel", "50", "-y"]).arg(Path::new(SCRIPTS).join("pyinfra_inventory.py"));
        command.arg(Path::new(SCRIPTS).join(script)).env("BENCH_JOB", job).current_dir(self.sockets.path());
        measure(&mut command, &self.log)
    }

    /// Forks, pipelining and the rest are in `ansible.cfg`. Each run makes connections of its own, as the others do.
    pub fn ansible(&self, inventory: &Path, playbook: &Path) -> Result<Took> {
        let sockets = tempfile::tempdir_in(self.sockets.path())?;
        let home = self.sockets.path().join("home");
        fs::create_dir_all(&home)?;
        let mut command = Command::new(self.venv.join("bin/ansible-playbook"));
        command.arg("-i").arg(inventory).arg(playbook).env("ANSIBLE_CONFIG", Path::new(SCRIPTS).join("ansible.cfg"));
        command.env("ANSIBLE_SSH_CONTROL_PATH_DIR", sockets.path()).env("ANSIBLE_HOME", home);
        measure(&mut command, &self.log)
    }
}
