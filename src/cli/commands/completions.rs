//! `etcdrun completions SHELL`.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

use crate::cli::support::{CliError, Exit, Invocation};

#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell to complete for
    shell: Shell,
}

pub fn run(args: &CompletionsArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::cli::Cli::command(), "etcdrun", &mut script);
    invocation.print(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Success)
}
