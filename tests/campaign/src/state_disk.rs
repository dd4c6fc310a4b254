//! The disk that the operator's state is on: one of its own, so that it can be full, and has room again.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

/// More than the state of any life takes.
const SIZE: u64 = 2 << 30;
const PAGE: u64 = 4096;

/// Mounted for as long as it is held; then what was on it is in its place.
pub struct StateDisk(PathBuf);

impl StateDisk {
    pub fn new(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder)?;
        let options = format!("size={SIZE},mode=0700");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &options, "campaign"]).arg(folder))?;
        Ok(Self(folder.to_owned()))
    }

    /// It is as large as what is on it, or has all its room again. What fits into a page that is there can still be written, as on
    /// any disk.
    pub fn fill(&self, is_full: bool) -> Result<()> {
        for _ in 0..20 {
            let size = if is_full { used(&self.0)?.max(PAGE) } else { SIZE };
            let resized = run(Command::new("mount").args(["-o", &format!("remount,size={size}")]).arg(&self.0));
            // It may have grown since it was looked at.
            if resized.is_ok() {
                return Ok(());
            }
        }
        anyhow::bail!("{} could not be filled", self.0.display())
    }
}

impl Drop for StateDisk {
    fn drop(&mut self) {
        let aside = self.0.with_extension("copy");
        let kept = run(Command::new("cp").arg("-a").arg(&self.0).arg(&aside));
        let ended = kept.and_then(|()| run(Command::new("umount").arg("--lazy").arg(&self.0)));
        let ended =
            ended.and_then(|()| Ok(fs::remove_dir_all(&self.0)?)).and_then(|()| Ok(fs::rename(&aside, &self.0)?));
        if let Err(error) = ended {
            println!("  the operator's state is lost: {error:#}");
        }
    }
}

fn used(folder: &Path) -> Result<u64> {
    let output = Command::new("df").args(["--output=used", "-B1"]).arg(folder).output()?;
    let text = String::from_utf8(output.stdout)?;
    text.lines().last().and_then(|line| line.trim().parse().ok()).context("df says nothing")
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output()?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
