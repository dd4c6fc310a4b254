//! Files of roles that are embedded in the binary, put where modules can read them while a run lasts.

use std::{
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
    sync::OnceLock,
};

use crate::playbook::{EmbeddedTree, Place};

/// A private folder, made when the first embedded file is asked for, and removed with the run.
#[derive(Default)]
pub(super) struct Unpacked {
    folder: OnceLock<Option<PathBuf>>,
}

impl Unpacked {
    /// Where the place is on disk; `None` if the embedded files cannot be unpacked.
    pub(super) fn path(&self, place: &Place) -> Option<PathBuf> {
        match place {
            Place::Disk(path) => Some(path.clone()),
            Place::Embedded { tree, path } => {
                let folder = self.folder.get_or_init(|| unpack(*tree).ok()).as_ref()?;
                Some(folder.join(tree.name).join(path))
            }
        }
    }
}

impl Drop for Unpacked {
    fn drop(&mut self) {
        if let Some(folder) = self.folder.get().and_then(Option::as_ref) {
            // What cannot be removed is a copy of what is in the binary anyway.
            let _ = fs::remove_dir_all(folder);
        }
    }
}

fn unpack(EmbeddedTree { name, root }: EmbeddedTree) -> io::Result<PathBuf> {
    let folder = std::env::temp_dir().join(format!("etcdrun-embedded-{:016x}", rand::random::<u64>()));
    DirBuilder::new().mode(0o700).create(&folder)?;
    fs::create_dir(folder.join(name))?;
    root.extract(folder.join(name))?;
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::EMBEDDED;

    #[test]
    fn embedded_files_are_on_disk_only_while_they_are_needed() {
        let unpacked = Unpacked::default();
        let path = unpacked.path(&EMBEDDED.roles.place("README.md")).unwrap();
        assert!(fs::read_to_string(&path).unwrap().len() > 10);
        drop(unpacked);
        assert!(!path.exists());
    }
}
