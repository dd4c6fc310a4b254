//! Files in the state folder, which only their owner may read.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::Path,
};

use super::StateError;

const IGNORED: &str = ".gitignore";

/// Makes a folder in the state folder, or that one itself. It lies in what is often a repository, and has nothing that belongs into
/// one, so it says that to git before there is anything in it.
pub fn make_folder(state: &Path, path: &Path) -> Result<(), StateError> {
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
pub fn open_private(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).mode(0o600).open(path)
}

/// Writes a whole file that appears at once, and stays.
pub fn write_private(path: &Path, bytes: &[u8]) -> Result<(), StateError> {
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

pub fn sync_folder(path: &Path) -> io::Result<()> {
    File::open(path)?.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

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
