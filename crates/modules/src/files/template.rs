//! `template`: renders a template and puts the result on the target.

use std::path::{Path, PathBuf};

use schemars::JsonSchema;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{
    Action, BuildContext, Module, ModuleError, OperatorFile, ResultField, Traits,
    copy::{checked_dest, landing, name_of, split_validate, validate_command},
    local::{self, Files},
    place::{self, Place},
    yes,
};
use crate::model::{Effects, FileMode};

/// Renders a template of the operator and puts the result on the target.
///
/// The text is Jinja2, with the variables of the task; a name that is not defined is an error. Everything else is as
/// with `copy`: written next to the destination and renamed, attributes kept unless set.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Template {
    /// The template; a relative path is searched in the role's `templates` and next to the playbook.
    src: String,
    /// The path on the target. A directory, or a path that ends in a slash, takes the file under its own name.
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
    /// Permission bits of the directory that a trailing slash in `dest` creates.
    #[serde(default)]
    directory_mode: Option<FileMode>,
    /// Keep the previous file under a name with the time in it.
    #[serde(default)]
    backup: bool,
    /// Replace a file that has another content; `false` writes it only if there is none yet.
    #[serde(default = "yes")]
    force: bool,
    /// Write to the file that a link at `dest` points to, instead of replacing the link.
    #[serde(default)]
    follow: bool,
    /// A command that must accept the new file before it is put in place; `%s` stands for its path. Runs without
    /// a shell, and not in check mode.
    #[serde(default)]
    validate: Option<String>,
}

impl Module for Template {
    const NAME: &'static str = "template";
    const TRAITS: Traits = Traits { file: OperatorFile::Template, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Configure etcd
  template:
    src: etcd.conf.yml.j2
    dest: /etc/etcd/etcd.conf.yml
    owner: root
    group: etcd
    mode: \"0640\"
  notify: Restart etcd
";
    const RESULT: &'static [ResultField] = place::RESULT;

    fn validate(&self) -> Result<(), ModuleError> {
        validate_command(self.validate.as_deref())
    }

    fn effects(&self) -> Effects {
        Effects::converging().on(landing(&self.dest, Some(&self.src)))
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let (text, secret) = render(&self.src, context)?;
        let place = Place {
            secret,
            dest: checked_dest(self.dest)?,
            name: name_of(&self.src)?,
            owner: self.owner,
            group: self.group,
            mode: self.mode,
            directory_mode: self.directory_mode,
            backup: self.backup,
            keep: !self.force,
            follow: self.follow,
            validate: split_validate(self.validate.as_deref())?,
            ..Place::default()
        };
        Ok(Action::Remote(place.inline(text.as_bytes())))
    }
}

/// The text, and whether the template was encrypted.
fn render(src: &str, context: &BuildContext<'_>) -> Result<(Zeroizing<String>, bool), ModuleError> {
    let path = local::find(src, context.template_paths)?;
    let files = Files::new(context, true);
    let secret = std::cell::Cell::new(false);
    let read = |path: &Path| {
        let (bytes, opened) = files.bytes(path)?;
        secret.set(secret.get() || opened);
        let text = String::from_utf8(bytes.to_vec());
        text.map_err(|_| ModuleError::new(format!("`{}` is not UTF-8 text", path.display())))
    };
    let text = Zeroizing::new(read(&path)?);
    let include = |name: &str| read(&included(name, &path, context.template_paths)?).ok();
    let rendered = context.engine.render_file(&path.display().to_string(), &text, &include, context.scope);
    let rendered = rendered.map_err(|error| ModuleError { message: error.message, help: error.help })?;
    let rendered = Zeroizing::new(rendered);
    match rendered.contains('\0') {
        true => Err(ModuleError::new(format!("`{src}` renders to a text with a NUL byte"))),
        false => Ok((rendered, secret.get())),
    }
}

/// A template that another one includes: beside it, or where templates are looked for.
fn included(name: &str, from: &Path, folders: &[PathBuf]) -> Option<PathBuf> {
    let beside = from.parent().map(|folder| folder.join(name)).filter(|path| path.is_file());
    beside.or_else(|| local::find(name, folders).ok())
}
