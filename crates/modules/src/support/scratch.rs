//! A private file of the operator that goes away unless it is kept.

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

use crate::task::Permit;

pub(crate) struct Scratch {
    path: PathBuf,
}

impl Scratch {
    /// A new file in the folder that only the operator can read. Nothing else of the operator's is ever written by
    /// a module, so check mode, which has no permit, writes nothing.
    pub fn create(folder: &Path, _: &Permit) -> io::Result<(Self, File)> {
        let path = folder.join(format!(".etcdrun-{:016x}", rand::random::<u64>()));
        let file = OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(&path)?;
        Ok((Self { path }, file))
    }

    /// The same under a name that says what becomes of it. What an earlier run left under that name is worth nothing.
    pub fn create_as(path: &Path, _: &Permit) -> io::Result<(Self, File)> {
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(path)?;
        Ok((Self { path: path.to_owned() }, file))
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Renames the file over `dest`.
    pub fn keep_as(self, dest: &Path) -> io::Result<()> {
        fs::rename(&self.path, dest)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // Gone already if it was kept.
        let _ = fs::remove_file(&self.path);
    }
}
