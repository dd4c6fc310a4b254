//! `shell`: runs a command line in a shell.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{Action, BuildContext, Module, ModuleError, ResultField, Traits, command, yes};
use crate::{
    model::{Effects, Resource},
    remote::Payload,
};

/// Runs a command line in a shell on the target, with pipes, redirections and variables.
///
/// As with `command`, the task is changed whenever it ran, failed if the exit code is not 0, and unknown in
/// check mode. Values from templates are not quoted by themselves: write `{{ name | quote }}`. The command
/// line does not show in the target's list of processes.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Shell {
    /// The command line.
    cmd: String,
    /// Change to this directory first.
    #[serde(default)]
    chdir: Option<String>,
    /// Do not run if this path, or a file that matches this pattern, exists.
    #[serde(default)]
    creates: Option<String>,
    /// Run only if this path, or a file that matches this pattern, exists.
    #[serde(default)]
    removes: Option<String>,
    /// The shell; any that understands POSIX sh.
    #[serde(default = "default_shell")]
    executable: String,
    /// What the command reads from its standard input; otherwise it reads nothing.
    #[serde(default)]
    stdin: Option<String>,
    /// End `stdin` with a newline.
    #[serde(default = "yes")]
    stdin_add_newline: bool,
}

fn default_shell() -> String {
    "/bin/sh".to_owned()
}

impl Module for Shell {
    const NAME: &'static str = "shell";
    const FREE_FORM: Option<&'static str> = Some("cmd");
    const TRAITS: Traits = Traits { is_command_line: true, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Remove old snapshots
  shell: ls -1t /var/backups/etcd-*.db | tail -n +2 | xargs -r rm --
  changed_when: false

- name: Use a feature of bash
  shell:
    cmd: set -o pipefail; zcat dump.gz | head -n 1 > first-line
    chdir: /var/tmp
    creates: first-line
    executable: /bin/bash
";
    const RESULT: &'static [ResultField] = command::RESULT;

    fn effects(&self) -> Effects {
        Effects::opaque()
            .reading(self.removes.as_deref().map(Resource::glob))
            .on(self.creates.as_deref().map(Resource::glob))
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        if self.cmd.trim().is_empty() {
            return Err(ModuleError::new("the command is empty"));
        }
        let payload = Payload::new(concat!(include_str!("../support/creates.sh"), include_str!("shell.sh")))
            .tell("cmd", &self.cmd)
            .value("cmd", self.cmd)
            .value("executable", self.executable)
            .maybe("chdir", self.chdir)
            .maybe("creates", self.creates)
            .maybe("removes", self.removes);
        Ok(Action::Remote(command::with_stdin(payload, self.stdin, self.stdin_add_newline).capture()))
    }
}
