//! Processes that hold namespaces: started in a cgroup, in a session of their own, and there until that cgroup ends.

use std::{
    io::{BufRead, BufReader},
    process::{ChildStdin, Command, Stdio},
};

use anyhow::{Context, Result, bail};
use rustix::process::Pid;

use crate::{cgroup::Cgroup, command::command};

/// Enters cgroups by the files named before `--`, then becomes the command after it.
const ENTER: &str = r#"while [ "$1" != -- ]; do echo 0 >"$1" || exit; shift; done; shift; exec "$@""#;

/// A command that will run inside this cgroup from its first moment.
pub(crate) fn inside<'a>(cgroup: &Cgroup, words: impl IntoIterator<Item = &'a str>) -> Result<Command> {
    cgroup.create()?;
    let mut keeper = command("setsid", ["sh", "-c", ENTER, "keeper"]);
    keeper.args(cgroup.doors()).arg("--").args(words);
    Ok(keeper)
}

/// Starts it and waits for its first line, by which it says that its namespaces are there.
pub(crate) fn spawn_held(keeper: &mut Command) -> Result<(Pid, Option<ChildStdin>)> {
    let mut child = keeper.stdout(Stdio::piped()).spawn().context("could not start a keeper")?;
    let mut line = String::new();
    if let Some(stdout) = child.stdout.take() {
        BufReader::new(stdout).read_line(&mut line)?;
    }
    if line.trim() != "held" {
        let status = child.wait()?;
        bail!("a keeper ended with {status} before it held its namespaces");
    }
    Ok((Pid::from_child(&child), child.stdin.take()))
}
