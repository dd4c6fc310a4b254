//! `copy`: puts a file, a text or a folder on the target.

use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, BuildContext, Module, ModuleError, OperatorFile, ResultField, Traits,
    local::{self, Files},
    place::{self, Place},
    tree::Tree,
    words, yes,
};
use crate::model::{Effects, FileMode, Resource, Value};

/// Copies a file, a text, or a complete directory of the operator to the target.
///
/// The file is written next to its destination and renamed over it, so that a partial file is never visible. Owner, group
/// and mode of an existing file are kept unless set. A link at `dest` is replaced by the
/// file, unless `follow` is set; a link to a directory counts as a directory.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Copy {
    /// The file or directory of the operator; a relative path is searched in the role's `files` and next to the
    /// playbook. A directory is copied with its content; with a trailing slash, only its content.
    #[serde(default)]
    src: Option<String>,
    /// The text of the file, instead of `src`. A mapping or a list is written as JSON.
    #[serde(default)]
    content: Option<Value>,
    /// The path on the target. A directory, or a path that ends in a slash, takes the file under its own name;
    /// such a directory is created if it is missing.
    dest: String,
    /// The owner of the file, by name or UID.
    #[serde(default)]
    owner: Option<String>,
    /// The group of the file, by name or GID.
    #[serde(default)]
    group: Option<String>,
    /// Permission bits of the file.
    #[serde(default)]
    mode: Option<FileMode>,
    /// Permission bits of parent directories that are created.
    #[serde(default)]
    directory_mode: Option<FileMode>,
    /// Keep the previous file under a name with the time in it.
    #[serde(default)]
    backup: bool,
    /// Replace a file that has another content; `false` writes it only if there is none yet.
    #[serde(default = "yes")]
    force: bool,
    /// Decrypt a `src` that is encrypted with age; `false` copies it encrypted.
    #[serde(default = "yes")]
    decrypt: bool,
    /// `src` is a file that is already on the target.
    #[serde(default)]
    remote_src: bool,
    /// Write to the file that a link at `dest` points to, instead of replacing the link.
    #[serde(default)]
    follow: bool,
    /// A command that must accept the new file before it is put in place; `%s` stands for its path. Runs without
    /// a shell, and not in check mode.
    #[serde(default)]
    validate: Option<String>,
}

impl Module for Copy {
    const NAME: &'static str = "copy";
    const TRAITS: Traits = Traits { file: OperatorFile::Copied, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Allow the operators to use sudo
  copy:
    content: |
      %ops ALL=(ALL) NOPASSWD: ALL
    dest: /etc/sudoers.d/ops
    mode: \"0440\"
    validate: visudo -cf %s

- name: Install the helper scripts
  copy:
    src: scripts/
    dest: /usr/local/lib/etcd-scripts
    mode: \"0755\"
";
    const RESULT: &'static [ResultField] = place::RESULT;

    fn validate(&self) -> Result<(), ModuleError> {
        match (&self.src, &self.content) {
            (Some(_), Some(_)) => Err(ModuleError::new("`src` and `content` exclude each other")),
            (None, None) => Err(ModuleError::new("`copy` needs `src` or `content`")),
            (None, Some(_)) if self.remote_src => Err(ModuleError::new("`remote_src` needs `src`")),
            _ => validate_command(self.validate.as_deref()),
        }
    }

    fn effects(&self) -> Effects {
        let src = self.src.as_deref();
        let from = src.filter(|_| self.remote_src).map(Resource::path);
        Effects::converging().reading(from).on(landing(&self.dest, src))
    }

    fn action(mut self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let (src, content) = (self.src.take(), self.content.take());
        let (remote_src, files) = (self.remote_src, Files::new(context, self.decrypt));
        let place = self.place()?;
        match (src, content) {
            (_, Some(content)) => Ok(Action::Remote(place.inline(&text_of(content)?))),
            (Some(src), _) if remote_src => {
                let place = Place { name: name_of(&src)?, ..place };
                Ok(Action::Remote(place.remote(&src)))
            }
            (Some(src), _) => copy_local(place, &src, files, context),
            (None, None) => Err(ModuleError::new("`copy` needs `src` or `content`")),
        }
    }
}

impl Copy {
    fn place(self) -> Result<Place, ModuleError> {
        Ok(Place {
            dest: checked_dest(self.dest)?,
            owner: self.owner,
            group: self.group,
            mode: self.mode,
            directory_mode: self.directory_mode,
            backup: self.backup,
            keep: !self.force,
            follow: self.follow,
            validate: split_validate(self.validate.as_deref())?,
            ..Place::default()
        })
    }
}

fn copy_local(place: Place, src: &str, files: Files, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
    let path = local::find(src, context.file_paths)?;
    if path.is_dir() {
        return Ok(Action::Engine(Box::new(Tree::new(place, path, src.ends_with('/'), files)?)));
    }
    Ok(Place { name: name_of(src)?, ..place }.local(files.read(&path)?))
}

/// Where a file, or a folder, of the operator may land: at `dest`, or in it under its own name.
pub(super) fn landing(dest: &str, src: Option<&str>) -> Vec<Resource> {
    let inside = |src: &str| match src.ends_with('/') {
        true => Resource::tree(dest),
        false => Resource::tree(format!("{}/{}", dest.trim_end_matches('/'), src.rsplit('/').next().unwrap_or(src))),
    };
    [Resource::path(dest)].into_iter().chain(src.map(inside)).collect()
}

pub(super) fn checked_dest(dest: String) -> Result<String, ModuleError> {
    match dest.as_str() {
        "" => Err(ModuleError::new("`dest` is empty")),
        _ => Ok(dest),
    }
}

/// The last part of a path.
pub(crate) fn name_of(path: &str) -> Result<String, ModuleError> {
    Path::new(path)
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .ok_or_else(|| ModuleError::new(format!("`{path}` does not end in the name of a file")))
}

pub(super) fn validate_command(command: Option<&str>) -> Result<(), ModuleError> {
    match command {
        Some(command) if !command.contains("%s") && !command.contains("{{") => {
            Err(ModuleError::new("`validate` must contain %s, which stands for the new file"))
        }
        _ => Ok(()),
    }
}

pub(super) fn split_validate(command: Option<&str>) -> Result<Vec<String>, ModuleError> {
    validate_command(command)?;
    command.map_or_else(|| Ok(Vec::new()), words::split)
}

fn text_of(content: Value) -> Result<Vec<u8>, ModuleError> {
    let text = match content {
        Value::String(text) => text,
        other => other.to_string(),
    };
    match text.contains('\0') {
        true => Err(ModuleError::new("`content` contains a NUL byte").help("put it into a file and set `src`")),
        false => Ok(text.into_bytes()),
    }
}
