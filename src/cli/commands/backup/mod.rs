//! `etcdrun backup CLUSTER`, and what else is done with backups: list, verify, rekey.

mod list;
mod rekey;
mod verify;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::KnownArgs,
    clusters::find_cluster,
    shelf::{BucketArgs, Shelf, absolute, backup_section},
    site::Site,
    verb::{VerbArgs, play},
};

#[derive(Args, Debug)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:\n  etcdrun backup prod --to file:/srv/backups --keep-last 7\n  etcdrun backup prod --to s3:backups/etcd --endpoint https://s3.example.com --recipient age1...\n  etcdrun backup list prod\n  etcdrun backup verify prod --all"
)]
pub struct BackupCommand {
    #[command(subcommand)]
    verb: Option<Verb>,

    /// The cluster
    #[arg(required = true)]
    cluster: Option<String>,

    /// Store it here: file:DIRECTORY or s3:BUCKET/PREFIX [default: `backup.to` of the cluster]
    #[arg(long, value_name = "PLACE")]
    to: Option<String>,

    /// Encrypt it to this public key of age or SSH; may be repeated [default: `backup.recipients` of the cluster]
    #[arg(long, value_name = "KEY")]
    recipient: Vec<String>,

    /// Keep the N newest backups of this cluster and delete older ones
    #[arg(long, value_name = "N")]
    keep_last: Option<u32>,

    /// Keep the backups of the last N days and delete older ones
    #[arg(long, value_name = "N")]
    keep_days: Option<u32>,

    /// Take it from this member, even if it is unhealthy
    #[arg(long, value_name = "MEMBER")]
    through: Option<String>,

    #[command(flatten)]
    bucket: BucketArgs,

    #[command(flatten)]
    args: VerbArgs,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List the backups of a cluster, the newest first
    List(list::ListArgs),
    /// Read backups completely, and compare them with their manifests
    Verify(verify::VerifyArgs),
    /// Encrypt backups again, for other keys
    Rekey(rekey::RekeyArgs),
}

#[derive(Args, Debug)]
struct WhichArgs {
    /// The cluster
    cluster: String,

    /// Where they are: file:DIRECTORY or s3:BUCKET/PREFIX [default: `backup.to` of the cluster]
    #[arg(long, value_name = "PLACE")]
    from: Option<String>,

    #[command(flatten)]
    bucket: BucketArgs,

    /// The state directory with the cluster's backup key [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER", help_heading = "State")]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    known: KnownArgs,
}

impl WhichArgs {
    fn shelf(&self, invocation: &Invocation) -> Result<Shelf, CliError> {
        let site = Site::load(&self.known, self.state_dir.as_deref(), invocation)?;
        Shelf::open(site, &self.cluster, self.from.as_deref(), &self.bucket, invocation)
    }
}

impl BackupCommand {
    pub fn prints_document(&self) -> bool {
        matches!(self.verb, Some(Verb::List(_)))
    }
}

pub fn run(args: &BackupCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    match &args.verb {
        None => take(args, invocation),
        Some(Verb::List(args)) => list::run(args, invocation),
        Some(Verb::Verify(args)) => verify::run(args, invocation),
        Some(Verb::Rekey(args)) => rekey::run(args, invocation),
    }
}

fn take(args: &BackupCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let cluster = args.cluster.as_deref().unwrap_or_default();
    let site = Site::load(&args.args.known, args.args.run.state_dir.as_deref(), invocation)?;
    find_cluster(&site.inventory, cluster)?;
    let access = args.bucket.access(&backup_section(&site, cluster)?);
    let mut vars = json!({ "backup_access": args.bucket.vars()? });
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            vars[name] = value;
        }
    };
    let to = args.to.clone().or(backup_section(&site, cluster)?.to).unwrap_or_default();
    if to.starts_with("s3:") {
        access.exposed().iter().for_each(|exposed| invocation.warn(exposed));
    }
    set("backup_to", args.to.as_deref().map(absolute).transpose()?.map(Value::from));
    set("backup_recipients", (!args.recipient.is_empty()).then(|| json!(args.recipient)));
    set("backup_keep_last", args.keep_last.map(Value::from));
    set("backup_keep_days", args.keep_days.map(Value::from));
    set("backup_through", args.through.clone().map(Value::from));
    play("backup.yaml", cluster, &vars, &args.args, invocation)
}
