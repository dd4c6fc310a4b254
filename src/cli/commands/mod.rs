//! The commands, one file each; a command with subcommands is a directory. A command reads top to bottom: load, compile, run or print.
//!
//! To add one: a file here, and its three lines in this one.

mod backup;
mod certs;
mod completions;
mod console;
mod destroy;
mod doc;
mod drain;
mod etcdctl;
mod exec;
mod graph;
mod inventory;
mod lint;
mod logs;
mod member;
mod metrics;
mod plan;
mod playbook;
mod recover;
mod releases;
mod restore;
mod resume;
mod runs;
mod schema;
mod secret;
mod ssh;
mod status;
mod tunnel;
mod undrain;
mod unlock;
mod url;

use clap::Subcommand;

use super::support::{CliError, Exit, Invocation};

#[derive(Subcommand, Debug)]
pub enum Command {
    /// Run playbooks
    Playbook(playbook::PlaybookArgs),
    /// Show what playbooks would change; read-only
    Plan(plan::PlanArgs),
    /// Show the health of clusters: members, leader, versions, alarms, certificate expiry
    Status(status::StatusArgs),
    /// Write metrics of clusters, certificates, backups and runs, for Prometheus
    Metrics(metrics::MetricsArgs),
    /// Replace, add, remove, restart and move members of clusters
    Member(member::MemberCommand),
    /// Move every member off a hypervisor
    Drain(drain::DrainArgs),
    /// End a drain: allow members on the hypervisor again and move its former members back
    Undrain(undrain::UndrainArgs),
    /// Take a backup of a cluster; list, verify and re-encrypt backups
    Backup(Box<backup::BackupCommand>),
    /// Restore a cluster from a backup (replaces its data)
    Restore(Box<restore::RestoreArgs>),
    /// Recover a cluster that has lost quorum
    Recover(Box<recover::RecoverArgs>),
    /// Delete a cluster: VMs and disks, or etcd and its data on existing hosts
    Destroy(Box<destroy::DestroyArgs>),
    /// Run etcdctl for a cluster, through SSH and with the right certificate
    Etcdctl(etcdctl::EtcdctlArgs),
    /// Open a local port that forwards to a cluster
    Tunnel(tunnel::TunnelArgs),
    /// Print the URL of a cluster's load balancer, or those of its members
    Url(url::UrlArgs),
    /// Log into a host
    Ssh(ssh::SshArgs),
    /// Open the console of a member's guest
    Console(console::ConsoleArgs),
    /// Show a member's etcd log
    Logs(logs::LogsArgs),
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
    /// Add releases of etcd to the inventory, and check the listed ones
    Releases(releases::ReleasesCommand),
    /// Encrypt, view, edit and rekey secrets
    Secret(secret::SecretCommand),
    /// Print JSON Schemas, for editors
    Schema(schema::SchemaArgs),
    /// Print a completion script for a shell
    Completions(completions::CompletionsArgs),
    /// List the modules, or show the page of one
    Doc(doc::DocArgs),
}

impl Command {
    /// Whether `--json` means one document, and not events as they happen.
    pub fn prints_document(&self) -> bool {
        match self {
            Self::Status(_)
            | Self::Url(_)
            | Self::Graph(_)
            | Self::Runs(_)
            | Self::Inventory(_)
            | Self::Schema(_)
            | Self::Releases(_)
            | Self::Doc(_) => true,
            Self::Backup(args) => args.prints_document(),
            Self::Certs(args) => args.prints_document(),
            _ => false,
        }
    }
}

/// Runs a command; `resume` runs the one of an earlier run.
pub fn run(command: &Command, invocation: &Invocation) -> Result<Exit, CliError> {
    match command {
        Command::Playbook(args) => playbook::run(args, invocation),
        Command::Plan(args) => plan::run(args, invocation),
        Command::Status(args) => status::run(args, invocation),
        Command::Url(args) => url::run(args, invocation),
        Command::Metrics(args) => metrics::run(args, invocation),
        Command::Member(args) => member::run(args, invocation),
        Command::Drain(args) => drain::run(args, invocation),
        Command::Undrain(args) => undrain::run(args, invocation),
        Command::Backup(args) => backup::run(args, invocation),
        Command::Restore(args) => restore::run(args, invocation),
        Command::Recover(args) => recover::run(args, invocation),
        Command::Destroy(args) => destroy::run(args, invocation),
        Command::Etcdctl(args) => etcdctl::run(args, invocation),
        Command::Tunnel(args) => tunnel::run(args, invocation),
        Command::Ssh(args) => ssh::run(args, invocation),
        Command::Console(args) => console::run(args, invocation),
        Command::Logs(args) => logs::run(args, invocation),
        Command::Graph(args) => graph::run(args, invocation),
        Command::Exec(args) => exec::run(args, invocation),
        Command::Resume(args) => resume::run(args, invocation),
        Command::Runs(args) => runs::run(args, invocation),
        Command::Unlock(args) => unlock::run(args, invocation),
        Command::Inventory(args) => inventory::run(args, invocation),
        Command::Lint(args) => lint::run(args, invocation),
        Command::Certs(args) => certs::run(args, invocation),
        Command::Releases(args) => releases::run(args, invocation),
        Command::Secret(args) => secret::run(args, invocation),
        Command::Schema(args) => schema::run(args, invocation),
        Command::Completions(args) => completions::run(args, invocation),
        Command::Doc(args) => doc::run(args, invocation),
    }
}
