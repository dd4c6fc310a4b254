//! The state folder, and files in it that only their owner may read.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::{RunId, StateError};

const NAME: &str = ".etcdrun";

/// `.etcdrun`, or what stands in for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateFolder(PathBuf);

impl StateFolder {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Beside the first inventory that is a file or a folder; in the current folder otherwise.
    pub fn beside(inventories: &[PathBuf]) -> Self {
        let first = inventories.iter().find(|path| path.exists());
        let parent = first.and_then(|path| path.parent()).unwrap_or(Path::new(""));
        Self(parent.join(NAME))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    pub fn runs(&self) -> PathBuf {
        self.0.join("runs")
    }

    pub fn run(&self, id: &RunId) -> PathBuf {
        self.runs().join(id.as_str())
    }

    /// The keys of guests, in the form of a known_hosts file.
    pub fn known_hosts(&self) -> PathBuf {
        self.0.join("known_hosts")
    }

    pub(super) fn objects(&self) -> PathBuf {
        self.0.join("objects")
    }

    /// Makes the folders of a new run.
    pub(super) fn make(&self, id: &RunId) -> Result<PathBuf, StateError> {
        let run = self.run(id);
        for path in [&self.objects(), &run] {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(path);
            made.map_err(|error| StateError::io(path, &error))?;
        }
        sync_folder(&self.runs()).map_err(|error| StateError::io(self.runs(), &error))?;
        Ok(run)
    }
}

/// For appending. Others get no look at it.
pub(super) fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Writes a whole file that appears at once, and stays.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StateError> {
    let new = path.with_extension(format!("new-{:08x}", rand::random::<u32>()));
    let write = || {
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, path)?;
        sync_folder(path.parent().unwrap_or(Path::new(".")))
    };
    write().map_err(|error| {
        // It may never have been made.
        let _ = fs::remove_file(&new);
        StateError::io(path, &error)
    })
}

pub(super) fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_is_beside_the_inventory() {
        let here = tempfile::tempdir().unwrap();
        let inventory = here.path().join("inventory");
        fs::create_dir(&inventory).unwrap();
        assert_eq!(StateFolder::beside(&[inventory]).path(), here.path().join(".etcdrun"));
        assert_eq!(StateFolder::beside(&["web1,web2".into()]).path(), Path::new(".etcdrun"));
    }
}
