//! `etcdrun destroy CLUSTER`: shows what goes, takes a last backup, asks for the name, and takes everything away.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::YesArgs,
    clusters::{find_cluster, member_names, section},
    shelf::{BucketArgs, absolute},
    site::Site,
    verb::{VerbArgs, confirm_name, foresee, play},
};
use crate::{etcd::ClusterRecord, inventory::sections::BackupSection};

#[derive(Args, Debug)]
#[command(
    after_help = "First a last backup is taken. Then guests are deleted with their disks; on other hosts, etcd is deleted with its unit, settings, keys and data. At the end, the records of the cluster and its CA are deleted from the state directory. The inventory is not changed. Remove hosts that are lost for good from the inventory before.\n\nExamples:\n  etcdrun destroy test --check\n  etcdrun destroy test --backup-to file:/srv/backups\n  etcdrun destroy test --no-backup --yes"
)]
pub struct DestroyArgs {
    /// The cluster
    cluster: String,

    /// Store the last backup here: file:DIRECTORY or s3:BUCKET/PREFIX [default: `backup.to` of the cluster]
    #[arg(long, value_name = "PLACE")]
    backup_to: Option<String>,

    /// Take no last backup
    #[arg(long, conflicts_with = "backup_to")]
    no_backup: bool,

    /// Move data, disks of guests and the cluster's CA aside instead of deleting them
    #[arg(long)]
    keep_data: bool,

    #[command(flatten)]
    prompt: YesArgs,

    #[command(flatten)]
    bucket: BucketArgs,

    #[command(flatten)]
    args: VerbArgs,
}

pub fn run(args: &DestroyArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = Site::load(&args.args.known, args.args.run.state_dir.as_deref(), invocation)?;
    find_cluster(&site.inventory, &args.cluster)?;
    // What goes on was shown and agreed to when it began, and has the variables of then.
    if invocation.resumed.is_some() {
        return play("destroy.yaml", &args.cluster, &json!({}), &args.args, invocation);
    }
    let mut vars = json!({
        "destroy_confirm": args.cluster,
        "destroy_keep_data": args.keep_data,
        "destroy_backup": wants_backup(args, &site)?,
        "backup_access": args.bucket.vars()?,
    });
    if let Some(to) = &args.backup_to {
        vars["backup_to"] = Value::from(absolute(to)?);
    }
    match foresee("destroy.yaml", &args.cluster, &vars, &args.args, invocation)? {
        // What is gone already needs no name.
        Exit::Success => return Ok(Exit::Success),
        Exit::WouldChange if args.args.run.mode.check => return Ok(Exit::Success),
        Exit::WouldChange if !args.no_backup && !is_known(args, &site) => {
            let message = format!(
                "`{}` has resources on its hosts, but this state directory has no record of it, and no backup can be taken",
                args.cluster
            );
            let help = "use the state directory that it was created with (--state-dir), or pass --no-backup to destroy it without a backup";
            return Err(CliError::usage_with_help(message, Some(help.into())));
        }
        Exit::WouldChange => {}
        // A plan that failed has its own code; Terraform's 1 is none of ours.
        Exit::Unexpected => return Ok(Exit::TaskFailed),
        exit => return Ok(exit),
    }
    let disks =
        if args.keep_data { "Data and disks are moved aside." } else { "Data and disks of guests are DELETED." };
    let question =
        format!("Destroy {}, {}? {disks}", args.cluster, member_names(&site.inventory, &args.cluster).join(", "));
    confirm_name(&question, &args.cluster, args.prompt.yes, invocation)?;
    play("destroy.yaml", &args.cluster, &vars, &args.args, invocation)
}

fn is_known(args: &DestroyArgs, site: &Site) -> bool {
    !matches!(ClusterRecord::load(site.state.path(), &args.cluster), Ok(None))
}

/// Of what was never formed, or is gone already, there is nothing to keep.
fn wants_backup(args: &DestroyArgs, site: &Site) -> Result<bool, CliError> {
    if args.no_backup || !is_known(args, site) {
        return Ok(false);
    }
    let section: Option<BackupSection> =
        site.inventory.cluster(&args.cluster).map(|cluster| section(cluster, "backup")).transpose()?;
    match args.backup_to.is_some() || section.is_some_and(|section| section.to.is_some()) {
        true => Ok(true),
        false => {
            let help = "pass --backup-to, or --no-backup to destroy the cluster without a backup";
            let message = format!("no destination for the last backup of `{}`", args.cluster);
            Err(CliError::usage_with_help(message, Some(help.into())))
        }
    }
}
