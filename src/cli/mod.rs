//! The command line: parses arguments, calls the pipeline, maps errors to exit codes.
//!
//! One file a command. A command reads top to bottom: load, compile, run or print. Flags win over
//! ETCDRUN_* variables, these over etcdrun.toml, that over defaults; `config` has the list.

mod args;
mod backup;
mod certs;
#[cfg(test)]
mod commands_named;
mod completions;
mod config;
mod destroy;
mod doc;
mod drain;
mod error;
mod exec;
mod exit;
mod graph;
mod input;
mod inventory;
mod invocation;
mod lint;
mod listing;
mod member;
mod memory;
mod mending;
mod plan;
mod playbook;
mod record;
mod recover;
mod renewal;
mod restore;
mod resume;
mod run;
mod runs;
mod schema;
mod secret;
mod shell;
mod status;
mod terminal;
mod tunnel;
mod unlock;
mod vars;
mod verb;
mod visit;

use std::{ffi::OsString, process::ExitCode};

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

pub use error::CliError;
pub use exit::Exit;
pub(crate) use invocation::Invocation;

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

#[derive(Subcommand, Debug)]
enum Command {
    /// Run playbooks
    Playbook(playbook::PlaybookArgs),
    /// Show what playbooks would change; read-only
    Plan(plan::PlanArgs),
    /// Show the health of clusters: members, leader, versions, alarms, certificate expiry
    Status(status::StatusArgs),
    /// Replace, add, remove, restart and move members of clusters
    Member(member::MemberCommand),
    /// Move every member off a hypervisor
    Drain(drain::DrainArgs),
    /// End a drain: allow members on the hypervisor again and move its former members back
    Undrain(drain::UndrainArgs),
    /// Take a backup of a cluster; list, verify and re-encrypt backups
    Backup(Box<backup::BackupCommand>),
    /// Restore a cluster from a backup (replaces its data)
    Restore(Box<restore::RestoreArgs>),
    /// Recover a cluster that has lost quorum
    Recover(Box<recover::RecoverArgs>),
    /// Delete a cluster: VMs and disks, or etcd and its data on existing hosts
    Destroy(Box<destroy::DestroyArgs>),
    /// Run etcdctl for a cluster, through SSH and with the right certificate
    Etcdctl(tunnel::EtcdctlArgs),
    /// Open a local port that forwards to a cluster
    Tunnel(tunnel::TunnelArgs),
    /// Log into a host
    Ssh(shell::SshArgs),
    /// Open the console of a member's guest
    Console(shell::ConsoleArgs),
    /// Show a member's etcd log
    Logs(shell::LogsArgs),
    /// Print the task graph of a playbook; connects only with --observe
    Graph(graph::GraphArgs),
    /// Run one command, or one module, on hosts
    Exec(exec::ExecArgs),
    /// Resume a run that was interrupted, failed or crashed
    Resume(resume::ResumeArgs),
    /// List the runs, show one, or delete old ones
    Runs(runs::RunsCommand),
    /// Break the locks of a run that will not be resumed
    Unlock(unlock::UnlockArgs),
    /// Show the inventory after merging
    Inventory(inventory::InventoryCommand),
    /// Check inventory and playbooks for errors, without connecting
    Lint(lint::LintArgs),
    /// List, issue, renew and export certificates of clusters, and rotate CAs
    Certs(certs::CertsCommand),
    /// Encrypt, view, edit and rekey secrets
    Secret(secret::SecretCommand),
    /// Print JSON Schemas, for editors
    Schema(schema::SchemaArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// List the modules, or show the page of one
    Doc(doc::DocArgs),
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
    let (invocation, settled) = Invocation::new(&cli.global, command);
    match settled.and_then(|()| run(&cli.command, &invocation)) {
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
    // A closed pipe is all that can go wrong here, and then nobody reads.
    let _ = error.print();
    if error.use_stderr() { Exit::BadInput } else { Exit::Success }
}

fn run(command: &Command, invocation: &Invocation) -> Result<Exit, CliError> {
    match command {
        Command::Playbook(args) => playbook::run(args, invocation),
        Command::Plan(args) => plan::run(args, invocation),
        Command::Status(args) => status::run(args, invocation),
        Command::Member(args) => member::run(args, invocation),
        Command::Drain(args) => drain::run(args, invocation),
        Command::Undrain(args) => drain::undrain(args, invocation),
        Command::Backup(args) => backup::run(args, invocation),
        Command::Restore(args) => restore::run(args, invocation),
        Command::Recover(args) => recover::run(args, invocation),
        Command::Destroy(args) => destroy::run(args, invocation),
        Command::Etcdctl(args) => tunnel::etcdctl(args, invocation),
        Command::Tunnel(args) => tunnel::tunnel(args, invocation),
        Command::Ssh(args) => shell::ssh(args, invocation),
        Command::Console(args) => shell::console(args, invocation),
        Command::Logs(args) => shell::logs(args, invocation),
        Command::Graph(args) => graph::run(args, invocation),
        Command::Exec(args) => exec::run(args, invocation),
        Command::Resume(args) => resume::run(args, invocation),
        Command::Runs(args) => runs::run(args, invocation),
        Command::Unlock(args) => unlock::run(args, invocation),
        Command::Inventory(args) => inventory::run(args, invocation),
        Command::Lint(args) => lint::run(args, invocation),
        Command::Certs(args) => certs::run(args, invocation),
        Command::Secret(args) => secret::run(args, invocation),
        Command::Schema(args) => schema::run(args, invocation),
        Command::Completions(args) => completions::run(args, invocation),
        Command::Doc(args) => doc::run(args, invocation),
    }
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
