//! The command line: parses arguments, calls the pipeline, maps errors to exit codes.
//!
//! `commands` has one file per command, and `support` what commands share: a command imports from `support` and from no other
//! command. Flags win over ETCDRUN_* variables, these over etcdrun.toml, that over defaults; `support::config` has the list.

mod commands;
#[cfg(test)]
mod commands_named;
mod support;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser};

use commands::Command;
pub use support::{CliError, Exit};
use support::{Invocation, args, memory};

#[derive(Parser, Debug)]
#[command(
    name = "etcdrun",
    version,
    about = "Deploys and operates etcd clusters over SSH, in VMs on KVM hypervisors or on existing hosts.",
    subcommand_required = true,
    arg_required_else_help = true,
    disable_help_subcommand = true
)]
struct Cli {
    #[command(flatten)]
    global: args::GlobalArgs,

    #[command(subcommand)]
    command: Command,
}

/// Runs the program with these arguments, the first being its own name.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    memory::keep_private();
    let args: Vec<OsString> = args.into_iter().collect();
    let command = args.iter().skip(1).map(|arg| arg.to_string_lossy().into_owned()).collect();
    let cli = match parse(args) {
        Ok(cli) => cli,
        Err(error) => return usage(&error).into(),
    };
    let (invocation, settled) = Invocation::new(&cli.global, command, cli.command.prints_document());
    match settled.and_then(|()| commands::run(&cli.command, &invocation)) {
        Ok(exit) => exit.into(),
        Err(error) => invocation.fail(&error).into(),
    }
}

fn command() -> clap::Command {
    Cli::command().after_help(Exit::help())
}

fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Cli, clap::Error> {
    Cli::from_arg_matches(&command().try_get_matches_from(args)?)
}

/// Help and version are no errors; a wrong command line is bad input.
fn usage(error: &clap::Error) -> Exit {
    // A closed pipe is all that can go wrong here, and then nothing reads it.
    let _ = error.print();
    if error.use_stderr() { Exit::BadInput } else { Exit::Success }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn help_texts() {
        let mut all = command().term_width(100);
        insta::assert_snapshot!("help_etcdrun", all.render_long_help());
        all.build();
        for command in all.get_subcommands_mut() {
            let name = format!("help_{}", command.get_name());
            insta::assert_snapshot!(name, command.render_long_help());
        }
    }
}
