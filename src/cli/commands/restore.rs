//! `etcdrun restore CLUSTER`: finds the backup, asks, and plays `restore.yaml`.

use clap::Args;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::YesArgs,
    clusters::{find_cluster, member_names},
    runtime::runtime,
    shelf::{BucketArgs, Shelf, absolute},
    site::Site,
    verb::{VerbArgs, confirm, play},
};
use crate::{
    backup::{Manifest, Place, newest},
    modules::restore_time,
    source::did_you_mean,
};

#[derive(Args, Debug)]
#[command(
    after_help = "All members get the same data, as a new cluster that no old member can join. Users, roles and passwords of etcd are those of the backup; certificates and settings are kept. Old data is moved aside on each member, and not deleted.\n\nExamples:\n  etcdrun restore prod --from file:/srv/backups\n  etcdrun restore prod --at 2026-11-15T12:00:00Z --check\n  etcdrun restore test --from s3:backups/etcd --backup-of prod\n  etcdrun restore prod --drill\n  etcdrun restore prod --drill --into rehearsal"
)]
pub struct RestoreArgs {
    /// The cluster
    cluster: String,

    /// Where the backup is: file:DIRECTORY, s3:BUCKET/PREFIX, or file: and a snapshot of `etcdctl snapshot save`
    /// [default: `backup.to` of the cluster]
    #[arg(long, value_name = "PLACE")]
    from: Option<String>,

    /// The newest backup at or before this time, such as 2026-11-15T12:00:00Z [default: now]
    #[arg(long, value_name = "TIME", conflicts_with = "backup")]
    at: Option<String>,

    /// The backup with this name
    #[arg(long, value_name = "NAME")]
    backup: Option<String>,

    /// A backup of another cluster
    #[arg(long, value_name = "CLUSTER")]
    backup_of: Option<String>,

    /// Add N to the revision and mark everything before it compacted, so that watchers read again; 0 keeps the
    /// revisions [default: 1000000000]
    #[arg(long, value_name = "N")]
    bump_revision: Option<u64>,

    /// Restore even if the cluster is serving, or its state is unknown
    #[arg(long)]
    force: bool,

    /// Restore even if the backup was not signed with a known key; see docs/backup.md
    #[arg(long)]
    unauthenticated: bool,

    /// Prove that the backup can be restored: start etcd on a copy of it for a moment, on one member, and compare hashes
    #[arg(long, conflicts_with_all = ["force", "bump_revision"])]
    drill: bool,

    /// The member for the drill [default: the last one]
    #[arg(long, value_name = "MEMBER", requires = "drill")]
    on: Option<String>,

    /// Run the drill on a cluster of the inventory that does not exist: create it, restore into it, compare, and destroy it
    #[arg(long, value_name = "CLUSTER", requires = "drill", conflicts_with = "on")]
    into: Option<String>,

    #[command(flatten)]
    prompt: YesArgs,

    #[command(flatten)]
    bucket: BucketArgs,

    #[command(flatten)]
    args: VerbArgs,
}

pub fn run(args: &RestoreArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = Site::load(&args.args.known, args.args.run.state_dir.as_deref(), invocation)?;
    find_cluster(&site.inventory, &args.cluster)?;
    let members = member_names(&site.inventory, &args.cluster);
    let at = args.at.as_deref().map(restore_time).transpose().map_err(|error| CliError::usage(error.to_string()))?;
    let mut vars = json!({ "restore_force": args.force, "restore_unauthenticated": args.unauthenticated, "backup_access": args.bucket.vars()? });
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            vars[name] = value;
        }
    };
    set("restore_from", args.from.as_deref().map(absolute).transpose()?.map(Value::from));
    set("restore_backup_of", args.backup_of.clone().map(Value::from));
    set("restore_bump_revision", args.bump_revision.map(Value::from));
    set("restore_at", args.at.clone().map(Value::from));
    set("restore_which", args.backup.clone().map(Value::from));
    let (playbook, hosts) = match &args.into {
        Some(into) => {
            is_another(args, into, &site)?;
            // The revisions of the backup stay, so that its hash can be compared.
            set("restore_bump_revision", Some(0.into()));
            set("restore_backup_of", Some(args.backup_of.as_ref().unwrap_or(&args.cluster).clone().into()));
            set("restore_shelf_of", Some(args.cluster.clone().into()));
            set("destroy_confirm", Some(into.clone().into()));
            ("restore-into.yaml", into.as_str())
        }
        None if args.drill => ("restore-drill.yaml", drilled_on(args, &members)?),
        None => ("restore.yaml", args.cluster.as_str()),
    };
    // What goes on was found and agreed to when it began.
    if invocation.resumed.is_some() {
        return play(playbook, hosts, &vars, &args.args, invocation);
    }
    let shelf = Shelf::open(site, &args.cluster, args.from.as_deref(), &args.bucket, invocation)?;
    let described = match &shelf.place {
        Place::Folder(path) if path.is_file() => path.display().to_string(),
        _ => {
            let manifest = find(args, at, &shelf)?;
            let name = manifest.name().trim_end_matches(".json").to_owned();
            // A backup that comes while somebody thinks about the question is not what was asked for.
            vars["restore_which"] = name.clone().into();
            format!("{name} (revision {}, taken {})", manifest.revision, manifest.taken)
        }
    };
    if args.drill {
        return play(playbook, hosts, &vars, &args.args, invocation);
    }
    let question = format!(
        "Restore {} from {described}, on {}? Their current data is moved aside.",
        args.cluster,
        members.join(", ")
    );
    confirm(&question, args.prompt.yes, args.args.run.mode.check, invocation)?;
    play(playbook, hosts, &vars, &args.args, invocation)
}

/// The cluster that a drill makes and destroys is in the inventory too, and it is not the one whose backup it is.
fn is_another(args: &RestoreArgs, into: &str, site: &Site) -> Result<(), CliError> {
    find_cluster(&site.inventory, into)?;
    if into == args.cluster {
        let help = "add another cluster to the inventory, with its own hosts or guests";
        return Err(CliError::usage_with_help(
            format!("`{into}` is the cluster itself, and a drill destroys the cluster that it restores into"),
            Some(help.into()),
        ));
    }
    Ok(())
}

/// The member that a drill is on: the one that was named, or the last.
fn drilled_on<'m>(args: &'m RestoreArgs, members: &'m [String]) -> Result<&'m str, CliError> {
    let Some(name) = &args.on else { return Ok(members.last().map_or("", String::as_str)) };
    match members.contains(name) {
        true => Ok(name),
        false => {
            let near = did_you_mean(name, members.iter().map(String::as_str));
            Err(CliError::usage_with_help(format!("`{name}` is not a member of `{}`", args.cluster), near))
        }
    }
}

fn find(args: &RestoreArgs, at: Option<Timestamp>, shelf: &Shelf) -> Result<Manifest, CliError> {
    let of = args.backup_of.as_ref().unwrap_or(&args.cluster);
    let found = runtime()?.block_on(shelf.find(of, args.backup.as_deref()))?;
    let manifest = newest(&found.backups, at).ok_or_else(|| {
        let help = "`etcdrun backup list` shows the backups";
        CliError::usage_with_help(
            format!("{} has no backup of `{of}` at or before that time", shelf.place),
            Some(help.into()),
        )
    })?;
    // Whoever wants the newest does not want to learn later that there was a newer one.
    if let Some(newer) = found.damaged_since(manifest, at).next() {
        let help =
            format!("to use the newest that can be read, pass --backup {}", manifest.name().trim_end_matches(".json"));
        return Err(CliError::usage_with_help(format!("there is a newer backup: {}", newer.why), Some(help)));
    }
    let trust = shelf.trust(of, args.unauthenticated)?;
    match trust.check(&shelf.store.call(&manifest.name()), manifest) {
        Ok(trusted) => Ok(Manifest::clone(&trusted)),
        Err(error) => {
            // Who can put a newer one there must not get in the way of those that are good.
            let good: Vec<Manifest> = found.backups.iter().filter(|it| trust.check("", it).is_ok()).cloned().collect();
            let name = newest(&good, at).map(|it| it.name().trim_end_matches(".json").to_owned());
            let help = name.map(|name| format!("to use the newest that is authentic, pass --backup {name}"));
            Err(CliError::usage_with_help(error.to_string(), help))
        }
    }
}
