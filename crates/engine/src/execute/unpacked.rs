//! Files of roles that are embedded in the binary, put where modules can read them while a run lasts.

use std::{
    fs::{self, DirBuilder, File},
    io,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use rustix::fs::{FlockOperation, flock};

use crate::playbook::{EmbeddedTree, Place};

const PREFIX: &str = "etcdrun-embedded-";
/// The file in the folder that is locked as long as the run lasts.
const LOCK: &str = "lock";

/// A private folder, made when the first embedded file is asked for, and removed with the run.
#[derive(Default)]
pub(super) struct Unpacked {
    folder: Mutex<Option<Folder>>,
}

struct Folder {
    path: PathBuf,
    /// The names of those that are in it.
    trees: Vec<&'static str>,
    _lock: File,
}

impl Unpacked {
    /// Where the place is on disk; `None` if the embedded files cannot be unpacked.
    pub(super) fn path(&self, place: &Place) -> Option<PathBuf> {
        match place {
            Place::Disk(path) => Some(path.clone()),
            Place::Embedded { tree, path } => Some(self.unpack(*tree).ok()?.join(path)),
        }
    }

    fn unpack(&self, EmbeddedTree { name, root }: EmbeddedTree) -> io::Result<PathBuf> {
        let mut folder = self.folder.lock().unwrap_or_else(PoisonError::into_inner);
        let folder = match &mut *folder {
            Some(folder) => folder,
            none => none.insert(make(&std::env::temp_dir())?),
        };
        let path = folder.path.join(name);
        if !folder.trees.contains(&name) {
            fs::create_dir_all(&path)?;
            root.extract(&path)?;
            folder.trees.push(name);
        }
        Ok(path)
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.get_mut().unwrap_or_else(PoisonError::into_inner) {
            // What cannot be removed is a copy of what is in the binary anyway.
            let _ = fs::remove_dir_all(&folder.path);
        }
    }
}

fn make(above: &Path) -> io::Result<Folder> {
    // If that fails, a folder too many stays.
    let _ = sweep(above);
    let path = above.join(format!("{PREFIX}{:016x}", rand::random::<u64>()));
    DirBuilder::new().mode(0o700).create(&path)?;
    // It gets its name once it is locked, so that it is never seen without.
    let new = path.join("new");
    let lock = File::create_new(&new)?;
    // Where files cannot be locked, nothing is swept either.
    if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
        fs::rename(new, path.join(LOCK))?;
    }
    Ok(Folder { path, trees: Vec::new(), _lock: lock })
}

/// Removes the folders of runs that were killed.
fn sweep(above: &Path) -> io::Result<()> {
    let user = rustix::process::geteuid().as_raw();
    for entry in fs::read_dir(above)?.filter_map(Result::ok) {
        // Anybody can make something of that name there, such as a pipe, whose opening would not return.
        let is_own = |path: &Path, is_kind: fn(&fs::Metadata) -> bool| {
            path.symlink_metadata().is_ok_and(|metadata| metadata.uid() == user && is_kind(&metadata))
        };
        let (folder, path) = (entry.path(), entry.path().join(LOCK));
        if !entry.file_name().as_encoded_bytes().starts_with(PREFIX.as_bytes())
            || !is_own(&folder, fs::Metadata::is_dir)
            || !is_own(&path, fs::Metadata::is_file)
        {
            continue;
        }
        let Ok(lock) = File::open(path) else { continue };
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_dir_all(folder);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::EMBEDDED;

    #[test]
    fn embedded_files_are_on_disk_only_while_they_are_needed() {
        let unpacked = Unpacked::default();
        // Each tree is there, whichever was asked for first.
        let playbook = unpacked.path(&EMBEDDED.playbooks.place("site.yaml")).unwrap();
        let path = unpacked.path(&EMBEDDED.roles.place("README.md")).unwrap();
        assert!(fs::read_to_string(&path).unwrap().len() > 10 && playbook.exists());
        drop(unpacked);
        assert!(!path.exists() && !playbook.exists());
    }

    #[test]
    fn folders_of_killed_runs_are_removed_and_others_stay() {
        let above = tempfile::tempdir().unwrap();
        let killed = make(above.path()).unwrap().path;
        assert!(killed.exists());
        let running = make(above.path()).unwrap();
        assert!(!killed.exists());
        let other = make(above.path()).unwrap();
        assert!(running.path.exists() && other.path.exists());
    }
}
