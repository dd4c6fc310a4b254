//! `command`: runs a program, without a shell.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField, Traits, words, yes};
use crate::{
    model::{Effects, Resource},
    remote::{Payload, is_shell_word},
};

/// Runs a program on the target, without a shell: no pipes, no redirections, no expansion of `$HOME` or `*`.
/// Use `shell` if you need those.
///
/// The task is changed whenever the program ran, and failed if its exit code is not 0; `changed_when` and
/// `failed_when` override that. In check mode the program does not run, and its outcome is unknown,
/// unless `creates` or `removes` shows that it has nothing to do.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Command {
    /// The command line; quotes and backslashes keep words together.
    #[serde(default)]
    cmd: Option<String>,
    /// The words as a list, where nothing needs quotes. Instead of `cmd`.
    #[serde(default)]
    argv: Option<Vec<String>>,
    /// Change to this directory first.
    #[serde(default)]
    chdir: Option<String>,
    /// Do not run if this path, or a file that matches this pattern, exists.
    #[serde(default)]
    creates: Option<String>,
    /// Run only if this path, or a file that matches this pattern, exists.
    #[serde(default)]
    removes: Option<String>,
    /// What the program reads from its standard input; otherwise it reads nothing.
    #[serde(default)]
    stdin: Option<String>,
    /// End `stdin` with a newline.
    #[serde(default = "yes")]
    stdin_add_newline: bool,
}

pub(super) const RESULT: &[ResultField] = &[ResultField { name: "cmd", doc: "The command that ran." }];

impl Module for Command {
    const NAME: &'static str = "command";
    const FREE_FORM: Option<&'static str> = Some("cmd");
    const TRAITS: Traits = Traits { is_command_line: true, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Create the file system
  command:
    argv: [mkfs.ext4, -L, etcd data, /dev/vdb]
    creates: /dev/disk/by-label/etcd\\x20data

- name: Read the version
  command: etcd --version
  register: etcd_version
  changed_when: false
";
    const RESULT: &'static [ResultField] = RESULT;

    fn validate(&self) -> Result<(), ModuleError> {
        match (&self.cmd, &self.argv) {
            (Some(_), Some(_)) => Err(ModuleError::new("`cmd` and `argv` exclude each other")),
            (None, None) => Err(ModuleError::new("`command` needs `cmd` or `argv`")),
            _ => Ok(()),
        }
    }

    fn effects(&self) -> Effects {
        Effects::opaque()
            .reading(self.removes.as_deref().map(Resource::glob))
            .on(self.creates.as_deref().map(Resource::glob))
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let words = match (self.argv, self.cmd) {
            (Some(argv), _) => argv,
            (None, cmd) => words::split(cmd.as_deref().unwrap_or_default())?,
        };
        if words.first().is_none_or(String::is_empty) {
            return Err(ModuleError::new("the command is empty"));
        }
        let is_bare = [&self.chdir, &self.creates, &self.removes, &self.stdin].iter().all(|value| value.is_none());
        let payload = Payload::new(concat!(include_str!("../support/creates.sh"), include_str!("command.sh")));
        let payload = if is_bare && !is_shell_word(&words[0]) { payload.program() } else { payload };
        let payload = payload
            .tell("cmd", words.join(" "))
            .maybe("chdir", self.chdir)
            .maybe("creates", self.creates)
            .maybe("removes", self.removes);
        let payload = with_stdin(payload, self.stdin, self.stdin_add_newline);
        Ok(Action::Remote(words.iter().fold(payload, Payload::arg).capture()))
    }
}

/// The values that say what a command reads.
pub(super) fn with_stdin(payload: Payload, stdin: Option<String>, newline: bool) -> Payload {
    let payload = payload.flag("has_stdin", stdin.is_some());
    let stdin = stdin.map(|text| if newline && !text.ends_with('\n') { text + "\n" } else { text });
    payload.hidden("stdin", stdin.unwrap_or_default())
}
