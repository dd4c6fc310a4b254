//! The one setting of the machine that a lab changes, as long as any lab is up: every systemd watches files, and by default
//! all of them together may do so only 128 times, which is about twenty hosts.

use std::{fs, path::Path};

use anyhow::{Context, Result};

const SETTING: &str = "/proc/sys/fs/inotify/max_user_instances";
const NEEDED: u32 = 8192;

/// Raises the limit, and keeps the former one in this file.
pub(crate) fn raise(former: &Path) -> Result<()> {
    let now = fs::read_to_string(SETTING).with_context(|| format!("could not read {SETTING}"))?;
    if now.trim().parse::<u32>()? >= NEEDED {
        return Ok(());
    }
    fs::write(former, now.trim())?;
    fs::write(SETTING, NEEDED.to_string()).with_context(|| format!("could not raise {SETTING} to {NEEDED}"))
}

/// Puts the limit back to what it was.
pub(crate) fn restore(former: &Path) -> Result<()> {
    if former.exists() {
        fs::write(SETTING, fs::read_to_string(former)?)?;
        fs::remove_file(former)?;
    }
    Ok(())
}
