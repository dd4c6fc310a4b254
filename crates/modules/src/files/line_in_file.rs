//! `line_in_file`: one line of a file, edited by the operator and written back.

use base64::Engine as _;
use regex::bytes::Regex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    copy::{checked_dest, split_validate, validate_command},
    line_edit::{Edit, Insert, Match},
    local::Fingerprint,
    place::{self, Expect, Place},
};
use crate::{
    model::{Effects, FileMode, Outcome, Resource, Value},
    remote::Payload,
};

/// How often to edit again because the file changed under our hands.
const ATTEMPTS: usize = 3;

/// Makes sure that a line is in a file, or is not.
///
/// With `regexp`, the last line that matches becomes `line`; if none matches, or without `regexp`, the line is added
/// once. Patterns are those of Rust's regex crate: as in other tools, but without look-around and back-references
/// inside the pattern. A link is followed.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct LineInFile {
    /// The file on the target.
    #[serde(alias = "dest")]
    path: String,
    /// The line that should be there, or with `state: absent` and without `regexp`, should not.
    #[serde(default)]
    line: Option<String>,
    /// The line to replace or to remove. Found anywhere in a line, unless it starts with `^` or ends in `$`.
    #[serde(default)]
    regexp: Option<String>,
    /// As `regexp`, but plain text.
    #[serde(default)]
    search_string: Option<String>,
    /// `present` or `absent`.
    #[serde(default)]
    state: State,
    /// Where a new line goes: after the last line that matches this pattern, or `EOF`.
    #[serde(default)]
    insertafter: Option<String>,
    /// Where a new line goes: before the last line that matches this pattern, or `BOF`.
    #[serde(default)]
    insertbefore: Option<String>,
    /// Use the first line that matches instead of the last.
    #[serde(default)]
    firstmatch: bool,
    /// `\1` or `\g<name>` in `line` stand for groups of `regexp`; if that does not match, nothing is changed.
    #[serde(default)]
    backrefs: bool,
    /// Create the file if it is missing.
    #[serde(default)]
    create: bool,
    /// Keep the previous file under a name with the time in it.
    #[serde(default)]
    backup: bool,
    /// The owner of the file, by name or UID.
    #[serde(default)]
    owner: Option<String>,
    /// The group of the file, by name or GID.
    #[serde(default)]
    group: Option<String>,
    /// Permission bits of the file.
    #[serde(default)]
    mode: Option<FileMode>,
    /// A command that must accept the new file before it is put in place; `%s` stands for its path.
    #[serde(default)]
    validate: Option<String>,
}

/// Whether the line should be there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    #[default]
    Present,
    Absent,
}

impl Module for LineInFile {
    const NAME: &'static str = "line_in_file";
    const EXAMPLE: &'static str = "\
- name: Forbid passwords
  line_in_file:
    path: /etc/ssh/sshd_config
    regexp: '^#?PasswordAuthentication\\b'
    line: PasswordAuthentication no
    validate: sshd -t -f %s
  notify: Reload sshd
";
    const RESULT: &'static [ResultField] = place::RESULT;

    fn validate(&self) -> Result<(), ModuleError> {
        let exclusive = |a: bool, b: bool, names: &str| match a && b {
            true => Err(ModuleError::new(format!("{names} exclude each other"))),
            false => Ok(()),
        };
        exclusive(self.regexp.is_some(), self.search_string.is_some(), "`regexp` and `search_string`")?;
        exclusive(self.insertafter.is_some(), self.insertbefore.is_some(), "`insertafter` and `insertbefore`")?;
        if self.backrefs && self.regexp.is_none() {
            return Err(ModuleError::new("`backrefs` needs `regexp`, whose groups it refers to"));
        }
        if self.line.is_none() && self.regexp.is_none() && self.search_string.is_none() {
            return Err(ModuleError::new("`line_in_file` needs `line`, or `regexp` to remove lines"));
        }
        validate_command(self.validate.as_deref())
    }

    fn effects(&self) -> Effects {
        Effects::converging().on([Resource::path(&self.path)])
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let edit = self.edit()?;
        let place = Place {
            dest: checked_dest(self.path)?,
            owner: self.owner,
            group: self.group,
            mode: self.mode,
            backup: self.backup,
            follow: true,
            validate: split_validate(self.validate.as_deref())?,
            ..Place::default()
        };
        Ok(Action::Engine(Box::new(EditFile { edit, place, create: self.create })))
    }
}

impl LineInFile {
    fn edit(&self) -> Result<Edit, ModuleError> {
        let line =
            || match &self.line {
                Some(line) if line.contains(['\0', '\n']) => Err(ModuleError::new("`line` must be a single line")
                    .help("use `copy` or `template` for a complete text")),
                Some(line) => Ok(line.clone().into_bytes()),
                None => Err(ModuleError::new("`state: present` needs `line`")),
            };
        let found = match (&self.regexp, &self.search_string) {
            (Some(pattern), _) => Some(Match::Pattern(compile(pattern)?)),
            (None, Some(text)) => Some(Match::Text(text.clone().into_bytes())),
            (None, None) => None,
        };
        if self.state == State::Absent {
            let found = found.map_or_else(|| line().map(Match::Line), Ok)?;
            return Ok(Edit::Remove(found));
        }
        Ok(Edit::Ensure {
            line: line()?,
            found,
            insert: self.insert()?,
            first: self.firstmatch,
            backrefs: self.backrefs,
        })
    }

    fn insert(&self) -> Result<Insert, ModuleError> {
        Ok(match (self.insertafter.as_deref(), self.insertbefore.as_deref()) {
            (None | Some("EOF"), None) => Insert::End,
            (Some("BOF"), _) | (_, Some("BOF")) => Insert::Start,
            (Some(pattern), _) => Insert::After(compile(pattern)?),
            (None, Some(pattern)) => Insert::Before(compile(pattern)?),
        })
    }
}

fn compile(pattern: &str) -> Result<Regex, ModuleError> {
    Regex::new(pattern).map_err(|error| ModuleError::new(format!("`{pattern}` is not a pattern: {error}")))
}

/// Reads the file, edits it here, and writes it back if it is still the same.
struct EditFile {
    edit: Edit,
    place: Place,
    create: bool,
}

impl EngineAction for EditFile {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            for _ in 0..ATTEMPTS {
                if let Some(outcome) = self.attempt(context).await? {
                    return Ok(outcome);
                }
            }
            Err(ActionError::Failed(format!("{} changed each time it was about to be written", self.place.dest)))
        })
    }
}

impl EditFile {
    /// `None` if the file changed between reading and writing.
    async fn attempt(&self, context: &ActionContext) -> Result<Option<Outcome>, ActionError> {
        let mut read = context.run(self.read()).await?;
        if read.failed {
            return Ok(Some(read));
        }
        let before = match self.content(&mut read)? {
            Some(content) => content,
            None if self.edit.removes() => return Ok(Some(note(read, "the file does not exist"))),
            None if self.create => Vec::new(),
            None => return Ok(Some(self.missing(context.check_mode()))),
        };
        let exists = read.data.shift_remove("exists") == Some(Value::Bool(true));
        let after = match self.edit.apply(&before) {
            Some(after) => after,
            None if exists => return Ok(Some(read.with("dest", self.place.dest.clone()))),
            None => Vec::new(),
        };
        let expect = if exists { Expect::Sha256(Fingerprint::of(&before).sha256) } else { Expect::Absent };
        let place = Place { expect: Some(expect), ..self.place.clone() };
        let mut written = context.run(place.inline(&after)).await?;
        if written.data.shift_remove("stale").is_some() {
            return Ok(None);
        }
        written.changed |= read.changed;
        written.diff.splice(0..0, read.diff);
        Ok(Some(written))
    }

    fn read(&self) -> Payload {
        let payload = Payload::new(concat!(include_str!("../support/attributes.sh"), include_str!("line_in_file.sh")))
            .value("path", &self.place.dest);
        let Place { owner, group, mode, .. } = &self.place;
        place::attributes(payload, owner.as_deref(), group.as_deref(), mode.as_ref())
    }

    fn content(&self, read: &mut Outcome) -> Result<Option<Vec<u8>>, ActionError> {
        let failed = |why: &str| ActionError::Failed(format!("{}: {why}", self.place.dest));
        let Some(Value::String(encoded)) = read.data.shift_remove("content") else {
            return Ok(None);
        };
        let encoded: String = encoded.split_ascii_whitespace().collect();
        let content = base64::engine::general_purpose::STANDARD
            .decode(encoded)
            .map_err(|error| failed(&format!("cannot decode what the target sent: {error}")))?;
        match content.contains(&0) {
            true => Err(failed("is not a text file")),
            false => Ok(Some(content)),
        }
    }

    fn missing(&self, check_mode: bool) -> Outcome {
        let msg = format!("{} does not exist", self.place.dest);
        match check_mode {
            // An earlier task of the same run may be about to make it.
            true => Outcome { unknown: true, msg: format!("{msg} yet"), ..Outcome::default() },
            false => Outcome::failed(format!("{msg}; set create: true to create it")),
        }
    }
}

fn note(outcome: Outcome, msg: &str) -> Outcome {
    Outcome { msg: msg.to_owned(), ..outcome }
}
