//! The state folder, and files in it that only their owner may read.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
};

use super::{RunId, StateError};

const NAME: &str = ".etcdrun";
const IGNORED: &str = ".gitignore";

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
        [&self.objects(), &run].into_iter().try_for_each(|path| make_folder(&self.0, path))?;
        sync_folder(&self.runs()).map_err(|error| StateError::io(self.runs(), &error))?;
        Ok(run)
    }
}

/// Makes a folder in the state folder, or that one itself. It lies in what is often a repository, and has nothing that belongs into
/// one, so it says that to git before there is anything in it.
pub(crate) fn make_folder(state: &Path, path: &Path) -> Result<(), StateError> {
    let make = |path: &Path| DirBuilder::new().recursive(true).mode(0o700).create(path);
    make(state).map_err(|error| StateError::io(state, &error))?;
    let ignored = state.join(IGNORED);
    let new = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&ignored);
    match new.and_then(|mut file| file.write_all(b"*\n")) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(StateError::io(ignored, &error)),
        _ => {}
    }
    make(path).map_err(|error| StateError::io(path, &error))
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

    #[test]
    fn git_ignores_it_from_the_beginning() {
        let here = tempfile::tempdir().unwrap();
        let state = here.path().join("project/.etcdrun");
        make_folder(&state, &state.join("pki/prod")).unwrap();
        assert_eq!(fs::read_to_string(state.join(".gitignore")).unwrap(), "*\n");
        assert!(state.join("pki/prod").is_dir());
        // One that an earlier version has made gets one; one that is there stays.
        fs::remove_file(state.join(".gitignore")).unwrap();
        make_folder(&state, &state).unwrap();
        assert_eq!(fs::read_to_string(state.join(".gitignore")).unwrap(), "*\n");
        fs::write(state.join(".gitignore"), "runs\n").unwrap();
        make_folder(&state, &state.join("runs")).unwrap();
        assert_eq!(fs::read_to_string(state.join(".gitignore")).unwrap(), "runs\n");
    }
}
