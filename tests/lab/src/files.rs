//! Files that several processes of the lab share.

use std::{fs, io, os::fd::OwnedFd, os::unix::fs::MetadataExt, path::Path, time::Duration};

use anyhow::{Context, Result};
use rustix::fs::{FlockOperation, Mode, OFlags, flock, fstat};

use crate::wait;

/// Waits for whoever else is changing what is in this folder, which may be taken away and made anew meanwhile.
pub(crate) fn lock(folder: &Path) -> Result<OwnedFd> {
    let path = folder.join("lock");
    loop {
        let flags = OFlags::CREATE | OFlags::RDWR | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR)
            .with_context(|| format!("could not open {}", path.display()))?;
        flock(&file, FlockOperation::LockExclusive)?;
        let here = fstat(&file)?.st_ino;
        match fs::metadata(&path) {
            Ok(there) if there.ino() == here => return Ok(file),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
            _ => fs::create_dir_all(folder)?,
        }
    }
}

/// Whoever reads the file sees the old text or the new one.
pub(crate) fn replace_file(path: &Path, text: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, text)?;
    Ok(fs::rename(new, path)?)
}

/// Removes a folder into which a child of a start that was killed may still be writing.
pub(crate) fn remove_folder(path: &Path) -> Result<()> {
    wait::until(&format!("{} can be removed", path.display()), Duration::from_secs(10), || {
        match fs::remove_dir_all(path) {
            Ok(()) => Ok(Some(())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(())),
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(None),
            Err(error) => Err(error.into()),
        }
    })
}
