//! `script`: runs a script of the operator on the target.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, BuildContext, EngineAction, Module, ModuleError, OperatorFile, ResultField, Running, Traits,
    command,
    local::{self, Body, Files, Source},
    words,
};
use crate::{
    files::copy,
    model::{Effects, Resource},
    remote::Payload,
};

/// Runs a script of the operator on the target, with arguments.
///
/// The script travels with the task and is removed afterwards. Its first line (`#!`) names the interpreter, unless
/// `executable` does. As with `command`, the task is changed whenever it ran, failed if the exit code is not 0, and
/// unknown in check mode.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Script {
    /// The script, searched in the role's `files` and next to the playbook, and its arguments.
    cmd: String,
    /// The interpreter, with its options.
    #[serde(default)]
    executable: Option<String>,
    /// Change to this directory first.
    #[serde(default)]
    chdir: Option<String>,
    /// Do not run if this path, or a file that matches this pattern, exists.
    #[serde(default)]
    creates: Option<String>,
    /// Run only if this path, or a file that matches this pattern, exists.
    #[serde(default)]
    removes: Option<String>,
}

impl Module for Script {
    const NAME: &'static str = "script";
    const FREE_FORM: Option<&'static str> = Some("cmd");
    const TRAITS: Traits = Traits { file: OperatorFile::Script, is_command_line: true, ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Prepare the disks
  script:
    cmd: prepare-disks.sh --label etcd
    creates: /var/lib/etcd/lost+found

- name: Run a Python program if Python is installed
  script:
    cmd: report.py --short
    executable: python3 -u
";
    const RESULT: &'static [ResultField] = command::RESULT;

    fn effects(&self) -> Effects {
        Effects::opaque()
            .reading(self.removes.as_deref().map(Resource::glob))
            .on(self.creates.as_deref().map(Resource::glob))
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let mut words = words::split(&self.cmd)?.into_iter();
        let script = words.next().ok_or_else(|| ModuleError::new("`script` needs the path of a script"))?;
        let path = local::find(&script, context.file_paths)?;
        if path.is_dir() {
            return Err(ModuleError::new(format!("`{}` is a directory, not a script", path.display())));
        }
        let body = Files::new(context, true).read(&path)?;
        let interpreter = match (&self.executable, &body) {
            (Some(executable), _) => words::split(executable)?,
            (None, Body::Inline { bytes, .. }) => shebang(bytes),
            (None, Body::Upload(_)) => Vec::new(),
        };
        let payload = Payload::new(concat!(include_str!("../support/creates.sh"), include_str!("script.sh")))
            .tell("cmd", &self.cmd)
            .value("name", copy::name_of(&script)?)
            .value("before", interpreter.len().to_string())
            .maybe("chdir", self.chdir)
            .maybe("creates", self.creates)
            .maybe("removes", self.removes);
        let payload = interpreter.into_iter().chain(words).fold(payload, Payload::arg).capture();
        Ok(match body {
            Body::Inline { bytes, .. } => Action::Remote(payload.hidden("body", &*bytes).value("staged", "")),
            Body::Upload(source) => Action::Engine(Box::new(Large { payload: payload.value("body", ""), source })),
        })
    }
}

/// The interpreter that the first line names, so that the script also runs where /tmp forbids execution.
fn shebang(body: &[u8]) -> Vec<String> {
    let line = body.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let Some(line) = line.strip_prefix(b"#!").and_then(|line| std::str::from_utf8(line).ok()) else {
        return Vec::new();
    };
    // The kernel passes everything after the interpreter as one argument.
    match line.trim().split_once([' ', '\t']) {
        Some((interpreter, option)) => vec![interpreter.to_owned(), option.trim().to_owned()],
        None if line.trim().is_empty() => Vec::new(),
        None => vec![line.trim().to_owned()],
    }
}

/// A script that is too large, or not text, to be part of a payload.
struct Large {
    payload: Payload,
    source: Source,
}

impl EngineAction for Large {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let staged = match context.check_mode() {
                true => String::new(),
                false => self.source.upload(context).await?,
            };
            context.run(self.payload.clone().value("staged", staged)).await
        })
    }
}

#[cfg(test)]
mod tests {
    use super::shebang;

    #[test]
    fn the_first_line_names_the_interpreter() {
        let cases: [(&str, &[&str]); 5] = [
            ("#!/bin/sh\necho", &["/bin/sh"]),
            ("#! /usr/bin/env -S python3 -u\r\n", &["/usr/bin/env", "-S python3 -u"]),
            ("#!\n", &[]),
            ("echo hello", &[]),
            ("", &[]),
        ];
        for (body, words) in cases {
            assert_eq!(shebang(body.as_bytes()), words, "{body}");
        }
    }
}
