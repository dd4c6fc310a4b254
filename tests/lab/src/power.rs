//! Power that is lost for good: what was written to the data disk without a sync is gone.

#![allow(unsafe_code, reason = "the ioctl of ext4 has no safe wrapper; this file has nothing else")]

use std::{fs, io, os::fd::AsRawFd, path::Path};

use anyhow::{Context, Result};

/// `_IOR('X', 125, __u32)`: from then on the filesystem writes nothing more.
const EXT4_IOC_SHUTDOWN: libc::Ioctl = 0x8004_587d_u32 as libc::Ioctl;
/// What is in the journal in memory, and not yet on the disk, stays off it.
static WITHOUT_LOG_FLUSH: u32 = 2;

/// Ends the ext4 filesystem that this folder is on as a power cut does: only what was synced is there when it is mounted again.
pub(crate) fn stop_writing(folder: &Path) -> Result<()> {
    let disk = fs::File::open(folder).with_context(|| format!("could not open {}", folder.display()))?;
    // SAFETY: the descriptor is open, and the kernel reads a u32 there.
    let result = unsafe { libc::ioctl(disk.as_raw_fd(), EXT4_IOC_SHUTDOWN, &raw const WITHOUT_LOG_FLUSH) };
    if result < 0 {
        return Err(io::Error::last_os_error()).with_context(|| format!("{} is not on ext4", folder.display()));
    }
    Ok(())
}
