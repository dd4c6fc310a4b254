//! `file`: directories, links, attributes, and the absence of files.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField, place, yes};
use crate::{
    model::{Effects, FileMode, Resource},
    remote::Payload,
};

const BODY: &str = concat!(include_str!("../support/attributes.sh"), include_str!("file.sh"));

/// Creates directories and links, sets owner, group and mode, and removes files and directories.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct File {
    /// The path on the target.
    #[serde(alias = "dest", alias = "name")]
    path: String,
    /// What `path` should be. Without it, the existing path gets the attributes.
    #[serde(default)]
    state: Option<State>,
    /// What a link points to; a relative target of a symbolic link is relative to the link.
    #[serde(default)]
    src: Option<String>,
    /// The owner, by name or UID.
    #[serde(default)]
    owner: Option<String>,
    /// The group, by name or GID.
    #[serde(default)]
    group: Option<String>,
    /// Permission bits. Parent directories that are created get them too.
    #[serde(default)]
    mode: Option<FileMode>,
    /// Give the attributes to everything below a directory as well.
    #[serde(default)]
    recurse: bool,
    /// Create a link even if its target is missing, and replace a file or an empty directory by it.
    #[serde(default)]
    force: bool,
    /// Set the attributes of the target of a link, instead of the link.
    #[serde(default = "yes")]
    follow: bool,
}

/// What a path should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    /// An existing file; it is not created.
    File,
    /// A directory; created with its missing parents.
    Directory,
    /// Nothing; a directory is removed with its content.
    Absent,
    /// A file, created empty if it is missing; its times become now, so the task is always changed.
    Touch,
    /// A symbolic link to `src`.
    Link,
    /// A hard link to `src`.
    Hard,
}

impl State {
    fn as_str(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Absent => "absent",
            Self::Touch => "touch",
            Self::Link => "link",
            Self::Hard => "hard",
        }
    }

    fn is_link(self) -> bool {
        matches!(self, Self::Link | Self::Hard)
    }
}

impl Module for File {
    const NAME: &'static str = "file";
    const EXAMPLE: &'static str = "\
- name: Create the data directory
  file:
    path: /var/lib/etcd
    state: directory
    owner: etcd
    group: etcd
    mode: \"0700\"

- name: Choose the version
  file:
    path: /opt/etcd/current
    src: v3.5.34
    state: link
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "path", doc: "The path on the target." }];

    fn validate(&self) -> Result<(), ModuleError> {
        match self.state {
            // Also what a state that is still a template looks like.
            Some(State::File) => Ok(()),
            _ => self.agree(),
        }
    }

    fn effects(&self) -> Effects {
        let effects = Effects::converging();
        let tree = || [Resource::tree(&self.path)];
        match self.state {
            Some(State::Directory) | None if self.recurse => effects.on(tree()),
            Some(State::Directory) => {
                effects.reading([Resource::path(&self.path)]).writing(Resource::folders(&self.path))
            }
            Some(State::Absent) => effects.on(tree()),
            // What is below a link is something else from then on.
            Some(State::Link | State::Hard) => effects.reading([Resource::path(&self.path)]).writing(tree()),
            // Whatever is there, it is touched.
            Some(State::Touch) => effects.writing([Resource::path(&self.path)]),
            _ => effects.on([Resource::path(&self.path)]),
        }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        self.agree()?;
        let path = match self.path.trim_end_matches('/') {
            "" if self.path.is_empty() => return Err(ModuleError::new("`path` is empty")),
            "" => "/",
            path => path,
        };
        if (self.state == Some(State::Absent) || self.recurse) && is_root(path) {
            return Err(ModuleError::new(format!("`{}` is the root of the file system; refused", self.path)));
        }
        let payload = payload(self.state.map_or("", State::as_str), path)
            .maybe("src", self.src.as_deref())
            .flag("recurse", self.recurse)
            .flag("force", self.force)
            .flag("follow", self.follow);
        let Self { owner, group, mode, .. } = &self;
        Ok(Action::Remote(place::attributes(payload, owner.as_deref(), group.as_deref(), mode.as_ref())))
    }
}

impl File {
    /// The rules between the state and the other arguments.
    fn agree(&self) -> Result<(), ModuleError> {
        match (self.state, &self.src) {
            (Some(state), None) if state.is_link() => {
                Err(ModuleError::new(format!("`state: {}` needs `src`, the target of the link", state.as_str())))
            }
            (state, Some(_)) if !state.is_some_and(State::is_link) => {
                Err(ModuleError::new("`src` goes with `state: link` or `state: hard`")
                    .help("to put a file of yours on the target, use `copy`"))
            }
            (state, _) if self.recurse && state != Some(State::Directory) => {
                Err(ModuleError::new("`recurse` needs `state: directory`"))
            }
            _ => Ok(()),
        }
    }
}

fn payload(state: &str, path: &str) -> Payload {
    Payload::new(BODY).value("state", state).value("path", path)
}

/// A payload that makes one directory; for modules that need one.
pub(super) fn directory(path: &str, owner: Option<&str>, group: Option<&str>, mode: Option<&FileMode>) -> Payload {
    let payload =
        payload("directory", path).value("src", "").flag("recurse", false).flag("force", false).flag("follow", true);
    place::attributes(payload, owner, group, mode)
}

/// Whether a path comes down to `/` by its spelling: `//`, `/.`, `/etc/..`.
fn is_root(path: &str) -> bool {
    let depth = path.split('/').fold(0_usize, |depth, part| match part {
        "" | "." => depth,
        ".." => depth.saturating_sub(1),
        _ => depth + 1,
    });
    path.starts_with('/') && depth == 0
}

#[cfg(test)]
mod tests {
    use super::is_root;

    #[test]
    fn spellings_of_the_root_are_seen() {
        for path in ["/", "//", "/.", "/..", "/etc/..", "/a/b/../.././"] {
            assert!(is_root(path), "{path}");
        }
        for path in ["/etc", "etc/..", "/a/../b", "./x"] {
            assert!(!is_root(path), "{path}");
        }
    }
}
