//! Where playbooks and roles are read from: the disk, or the copy inside the binary.

use std::{
    borrow::Cow,
    fmt,
    hash::{Hash, Hasher},
    path::{Component, Path, PathBuf},
};

use include_dir::{Dir, DirEntry};

use crate::source::disk::{self, Found};

/// A file or a folder, on disk or embedded in the binary.
#[derive(Clone)]
pub enum Place {
    Disk(PathBuf),
    Embedded {
        tree: EmbeddedTree,
        /// Relative to the root of the tree.
        path: PathBuf,
    },
}

/// A folder that was embedded at build time, with the name it is shown under.
#[derive(Clone, Copy)]
pub struct EmbeddedTree {
    pub name: &'static str,
    pub root: &'static Dir<'static>,
}

/// What was embedded at build time.
#[derive(Clone, Copy)]
pub struct Embedded {
    pub playbooks: EmbeddedTree,
    pub roles: EmbeddedTree,
}

impl EmbeddedTree {
    pub fn place(self, path: impl Into<PathBuf>) -> Place {
        Place::Embedded { tree: self, path: path.into() }
    }
}

impl Place {
    pub fn disk(path: impl Into<PathBuf>) -> Self {
        Self::Disk(path.into())
    }

    /// A place relative to this folder. An absolute path is always on disk.
    pub fn join(&self, relative: impl AsRef<Path>) -> Self {
        let relative = relative.as_ref();
        match self {
            _ if relative.is_absolute() => Self::disk(relative),
            Self::Disk(path) => Self::Disk(tidy(&path.join(relative))),
            Self::Embedded { tree, path } => tree.place(tidy(&path.join(relative))),
        }
    }

    pub fn parent(&self) -> Self {
        let of = |path: &Path| path.parent().unwrap_or(Path::new("")).to_owned();
        match self {
            Self::Disk(path) => Self::Disk(of(path)),
            Self::Embedded { tree, path } => tree.place(of(path)),
        }
    }

    pub fn is_file(&self) -> bool {
        match self {
            Self::Disk(path) => disk::find(path) == Found::File,
            Self::Embedded { .. } => self.entry().is_some_and(|entry| entry.as_file().is_some()),
        }
    }

    pub fn is_dir(&self) -> bool {
        match self {
            Self::Disk(path) => disk::find(path) == Found::Folder,
            Self::Embedded { path, .. } if path.as_os_str().is_empty() => true,
            Self::Embedded { .. } => self.entry().is_some_and(|entry| entry.as_dir().is_some()),
        }
    }

    /// The bytes of a file below this folder, if it is there and can be read.
    pub fn read(&self, relative: impl AsRef<Path>) -> Option<Cow<'static, [u8]>> {
        self.join(relative).contents()
    }

    /// The bytes of this file.
    pub fn contents(&self) -> Option<Cow<'static, [u8]>> {
        match self {
            Self::Disk(path) => disk::read(path, u64::MAX).ok().map(Cow::Owned),
            Self::Embedded { tree, path } => {
                tree.root.get_entry(path)?.as_file().map(|file| Cow::Owned(file.contents().to_vec()))
            }
        }
    }

    /// The path as messages show it.
    pub fn label(&self) -> PathBuf {
        match self {
            Self::Disk(path) if path.as_os_str().is_empty() => PathBuf::from("."),
            Self::Disk(path) => path.clone(),
            Self::Embedded { tree, path } if path.as_os_str().is_empty() => format!("embedded:{}", tree.name).into(),
            Self::Embedded { tree, path } => Path::new(&format!("embedded:{}", tree.name)).join(path),
        }
    }

    /// The path, if it is one the file system knows.
    pub fn disk_path(&self) -> Option<&Path> {
        match self {
            Self::Disk(path) => Some(path),
            Self::Embedded { .. } => None,
        }
    }

    /// Names of the entries of this folder, sorted.
    pub(super) fn entries(&self) -> Vec<String> {
        let name = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
        let mut names: Vec<String> = match self {
            Self::Disk(path) => disk::list(path).unwrap_or_default(),
            Self::Embedded { tree, path } if path.as_os_str().is_empty() => {
                tree.root.entries().iter().filter_map(|entry| name(entry.path())).collect()
            }
            Self::Embedded { .. } => {
                let entries = self.entry().map_or(&[][..], DirEntry::children);
                entries.iter().filter_map(|entry| name(entry.path())).collect()
            }
        };
        names.sort();
        names
    }

    /// Whether this folder has the same files as another, with the same content.
    pub(super) fn is_copy_of(&self, other: &Self) -> bool {
        let names = self.entries();
        let same = |name: &String| {
            let (own, other) = (self.join(name), other.join(name));
            if own.is_dir() { own.is_copy_of(&other) } else { own.contents() == other.contents() }
        };
        names == other.entries() && names.iter().all(same)
    }

    fn entry(&self) -> Option<&'static DirEntry<'static>> {
        match self {
            Self::Disk(_) => None,
            Self::Embedded { tree, path } => tree.root.get_entry(path),
        }
    }

    fn identity(&self) -> (&'static str, &Path) {
        match self {
            Self::Disk(path) => ("", path),
            Self::Embedded { tree, path } => (tree.name, path),
        }
    }
}

/// Removes `.` and resolves `..` by text, so that one file has one name and loops are noticed.
fn tidy(path: &Path) -> PathBuf {
    let mut tidied = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir if matches!(tidied.components().next_back(), Some(Component::Normal(_))) => {
                tidied.pop();
            }
            part => tidied.push(part),
        }
    }
    tidied
}

impl PartialEq for Place {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for Place {}

impl Hash for Place {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.identity().hash(state);
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.label(), f)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.label().display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::EMBEDDED;

    #[test]
    fn one_file_has_one_name() {
        let folder = Place::disk("a/b");
        assert_eq!(folder.join("../c.yaml"), Place::disk("a/c.yaml"));
        assert_eq!(folder.join("./c.yaml"), Place::disk("a/b/c.yaml"));
        assert_eq!(Place::disk("").join("../x"), Place::disk("../x"));
        assert_eq!(folder.join("/etc/x"), Place::disk("/etc/x"));
    }

    #[test]
    fn embedded_files_are_read() {
        let root = EMBEDDED.playbooks.place("");
        assert!(root.is_dir());
        assert!(root.entries().contains(&"ping.yaml".to_owned()));
        assert!(root.read("ping.yaml").is_some_and(|bytes| !bytes.is_empty()));
        assert_eq!(root.join("../../etc/passwd").contents(), None);
        assert_eq!(root.join("ping.yaml").to_string(), "embedded:playbooks/ping.yaml");
    }
}
