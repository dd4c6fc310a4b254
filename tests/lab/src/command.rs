//! Running the machine's own tools (ip, nft, unshare, ...), with errors that show what was said.

use std::{
    ffi::OsStr,
    io::Write,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};

/// A command with its arguments.
pub(crate) fn command<I, S>(program: &str, args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    command
}

/// Runs it to its end and returns what it printed.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("could not start {}", shown(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}", shown(command), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs it with a text on its stdin.
pub(crate) fn feed(command: &mut Command, text: &str) -> Result<String> {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("could not start {}", shown(command)))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(text.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("{} ended with {}: {}\nIt was given:\n{text}", shown(command), output.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
