//! The state folder.

use std::path::{Path, PathBuf};

use super::{RunId, StateError, make_folder, sync_folder};

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

    pub fn objects(&self) -> PathBuf {
        self.0.join("objects")
    }

    /// Makes the folders of a new run.
    pub fn make(&self, id: &RunId) -> Result<PathBuf, StateError> {
        let run = self.run(id);
        [&self.objects(), &run].into_iter().try_for_each(|path| make_folder(&self.0, path))?;
        sync_folder(&self.runs()).map_err(|error| StateError::io(self.runs(), &error))?;
        Ok(run)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

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
