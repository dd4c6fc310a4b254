//! `etcdrun backup CLUSTER`, and what else is done with backups: list, verify, rekey.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use super::{
    CliError, Exit, Invocation,
    certs::find_cluster,
    status::section,
    verb::{Known, KnownArgs, VerbArgs, known, play},
};
use crate::{
    backup::{
        Access, BackupError, Kept, Keys, Manifest, Place, Store, Trust, Trusted, Verdict, backups, reseal, unpack,
    },
    inventory::sections::BackupSection,
    model::ByteSize,
    secret::Recipients,
    source::{Opener, did_you_mean},
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

/// Access to a bucket; keys come from the inventory, else from AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or other credentials in the
/// environment.
#[derive(Args, Clone, Debug, Default)]
pub struct BucketArgs {
    /// The URL of an S3 service
    #[arg(long, value_name = "URL", help_heading = "Bucket")]
    endpoint: Option<String>,

    /// The region of the bucket
    #[arg(long, value_name = "NAME", help_heading = "Bucket")]
    region: Option<String>,

    /// Trust this CA for the endpoint, in addition to the CAs of the system
    #[arg(long, value_name = "FILE", help_heading = "Bucket")]
    s3_ca: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
enum Verb {
    /// List the backups of a cluster, the newest first
    List {
        #[command(flatten)]
        which: WhichArgs,
    },
    /// Read backups completely, and compare them with their manifests
    Verify {
        #[command(flatten)]
        which: WhichArgs,

        /// The backup [default: the newest]
        name: Option<String>,

        /// All backups of the cluster
        #[arg(long, conflicts_with = "name")]
        all: bool,

        /// Also read backups that were not signed with the cluster's backup key
        #[arg(long)]
        unauthenticated: bool,
    },
    /// Encrypt backups again, for other keys
    Rekey {
        #[command(flatten)]
        which: WhichArgs,

        /// The backup [default: all of the cluster]
        name: Option<String>,

        /// Encrypt to this public key of age or SSH; may be repeated [default: `backup.recipients` of the cluster]
        #[arg(long, value_name = "KEY")]
        recipient: Vec<String>,

        /// Also accept backups that were not signed with the cluster's backup key, and sign them
        #[arg(long)]
        unauthenticated: bool,
    },
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

pub fn run(args: &BackupCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    match &args.verb {
        None => take(args, invocation),
        Some(Verb::List { which }) => list(which, invocation),
        Some(Verb::Verify { which, name, all, unauthenticated }) => {
            verify(&Shelf::of(which, *unauthenticated, invocation)?, which, name.as_deref(), *all, invocation)
        }
        Some(Verb::Rekey { which, name, recipient, unauthenticated }) => {
            rekey(&Shelf::of(which, *unauthenticated, invocation)?, which, name.as_deref(), recipient, invocation)
        }
    }
}

fn take(args: &BackupCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let cluster = args.cluster.as_deref().unwrap_or_default();
    let known = known(&args.args.known, args.args.run.state_dir.as_deref(), invocation)?;
    find_cluster(&known.inventory, cluster)?;
    let access = args.bucket.access(&backup_section(&known, cluster)?);
    let mut vars = json!({ "backup_access": args.bucket.vars()? });
    let mut set = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            vars[name] = value;
        }
    };
    let to = args.to.clone().or(backup_section(&known, cluster)?.to).unwrap_or_default();
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

fn backup_section(known: &Known, cluster: &str) -> Result<BackupSection, CliError> {
    let found: Option<BackupSection> =
        known.inventory.cluster(cluster).map(|cluster| section(cluster, "backup")).transpose()?;
    Ok(found.unwrap_or_default())
}

impl BucketArgs {
    /// What the section says, unless a flag says something else.
    fn access(&self, section: &BackupSection) -> Access {
        let BucketArgs { endpoint, region, s3_ca } = self.clone();
        let kept = Access::of(section);
        Access { endpoint: endpoint.or(kept.endpoint), region: region.or(kept.region), ca: s3_ca.or(kept.ca), ..kept }
    }

    /// As keys of the section `backup`.
    pub(super) fn vars(&self) -> Result<Value, CliError> {
        let mut vars = json!({});
        let ca = self.s3_ca.as_ref().map(std::path::absolute).transpose()?;
        let ca = ca.map(|path| path.display().to_string());
        for (name, value) in [("endpoint", &self.endpoint), ("region", &self.region), ("ca", &ca)] {
            if let Some(value) = value {
                vars[name] = Value::from(value.as_str());
            }
        }
        Ok(vars)
    }
}

/// A place, with a folder as a whole path.
pub(super) fn absolute(place: &str) -> Result<String, CliError> {
    let place: Place = place.parse().map_err(wrong)?;
    Ok(match place {
        Place::Folder(path) => Place::Folder(std::path::absolute(path)?).to_string(),
        bucket => bucket.to_string(),
    })
}

pub(super) fn wrong(error: BackupError) -> CliError {
    CliError::usage(error.to_string())
}

/// The store that is meant, and what belongs to it.
pub(super) struct Shelf {
    known: Known,
    section: BackupSection,
    pub store: Store,
    pub place: Place,
    /// Backups need not be authentic.
    unauthenticated: bool,
}

impl Shelf {
    fn of(which: &WhichArgs, unauthenticated: bool, invocation: &Invocation) -> Result<Self, CliError> {
        let known = known(&which.known, which.state_dir.as_deref(), invocation)?;
        let shelf = Self::open(known, &which.cluster, which.from.as_deref(), &which.bucket, invocation)?;
        Ok(Self { unauthenticated, ..shelf })
    }

    pub fn open(
        known: Known,
        name: &str,
        from: Option<&str>,
        bucket: &BucketArgs,
        invocation: &Invocation,
    ) -> Result<Self, CliError> {
        find_cluster(&known.inventory, name)?;
        let section = backup_section(&known, name)?;
        let from = from.or(section.to.as_deref()).ok_or_else(|| {
            let help = "pass --from, or set `backup: {to: ...}` in the cluster";
            CliError::usage_with_help(format!("no backup location for `{name}`"), Some(help.into()))
        })?;
        let place: Place = from.parse().map_err(wrong)?;
        let access = bucket.access(&section);
        if let (Place::Bucket { .. }, Some(exposed)) = (&place, access.exposed()) {
            invocation.warn(&exposed);
        }
        let store = Store::open(&place, &access).map_err(wrong)?;
        Ok(Self { known, section, store, place, unauthenticated: false })
    }

    fn keys(&self, cluster: &str) -> Result<Keys, CliError> {
        Keys::load(self.known.state.path(), cluster).map_err(unexpected)
    }

    /// What is asked of backups of a cluster.
    pub fn trust(&self, cluster: &str, unauthenticated: bool) -> Result<Trust, CliError> {
        let encrypted = !self.section.recipients.is_empty();
        Ok(Trust { keys: self.keys(cluster)?, encrypted, anyway: unauthenticated })
    }

    fn opener(&self) -> Option<Arc<dyn Opener>> {
        self.known.sources.opener().cloned()
    }

    /// The backups of a cluster; of a name, that one alone.
    pub async fn find(&self, cluster: &str, name: Option<&str>) -> Result<Kept, CliError> {
        let mut kept = backups(&self.store, cluster).await.map_err(unexpected)?;
        let Some(name) = name else {
            if kept.backups.is_empty() && kept.damaged.is_empty() {
                return Err(CliError::usage(format!("{} has no backup of `{cluster}`", self.place)));
            }
            return Ok(kept);
        };
        let short = name.strip_suffix(".json").unwrap_or(name);
        let is_it = |manifest: &Manifest| manifest.name().strip_suffix(".json") == Some(short) || manifest.file == name;
        if let Some(damaged) = kept.damaged.iter().find(|it| it.name.strip_suffix(".json") == Some(short)) {
            return Err(CliError::Unexpected(damaged.why.clone()));
        }
        match kept.backups.iter().position(is_it) {
            Some(at) => Ok(Kept { backups: vec![kept.backups.swap_remove(at)], ..Kept::default() }),
            None => {
                let names: Vec<String> = kept.backups.iter().map(Manifest::name).collect();
                let near = did_you_mean(name, names.iter().map(String::as_str));
                Err(CliError::usage_with_help(format!("{} has no backup `{name}` of `{cluster}`", self.place), near))
            }
        }
    }
}

pub(super) fn unexpected(error: BackupError) -> CliError {
    CliError::Unexpected(error.to_string())
}

pub(super) fn runtime() -> Result<tokio::runtime::Runtime, CliError> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

fn list(which: &WhichArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let shelf = Shelf::of(which, false, invocation)?;
    let keys = shelf.keys(&which.cluster)?;
    let found = runtime()?.block_on(backups(&shelf.store, &which.cluster)).map_err(unexpected)?;
    if invocation.json {
        invocation.print(&format!("{:#}\n", json!({ "backups": found.backups, "damaged": found.damaged })))?;
        return Ok(Exit::Success);
    }
    invocation.print(&listing(&found, &keys))?;
    Ok(Exit::Success)
}

/// The newest first. What cannot be read has its place among them, and says why at the end.
fn listing(found: &Kept, keys: &Keys) -> String {
    let good = found.backups.iter().map(|manifest| {
        let row = [
            manifest.name(),
            manifest.taken.to_string(),
            manifest.revision.to_string(),
            ByteSize(manifest.size).to_string(),
            ByteSize(manifest.stored_size).to_string(),
            if manifest.recipients.is_empty() { "no".into() } else { format!("{} keys", manifest.recipients.len()) },
            keys.verdict(manifest).word().to_owned(),
        ];
        (manifest.taken, row)
    });
    let bad = found.damaged.iter().map(|it| {
        let unknown = || "?".to_owned();
        let (taken, revision) = (it.taken.to_string(), it.revision.to_string());
        (it.taken, [it.name.clone(), taken, revision, unknown(), unknown(), unknown(), "damaged".to_owned()])
    });
    let mut rows: Vec<_> = good.chain(bad).collect();
    rows.sort_by_key(|(taken, _)| std::cmp::Reverse(*taken));
    let rows: Vec<[String; 7]> = rows
        .into_iter()
        .map(|(_, [name, rest @ ..])| {
            let [a, b, c, d, e, f] = rest;
            [name.trim_end_matches(".json").to_owned(), a, b, c, d, e, f]
        })
        .collect();
    let mut text = table(["BACKUP", "TAKEN", "REVISION", "SIZE", "STORED", "ENCRYPTED", "AUTHENTIC"], &rows);
    for it in &found.damaged {
        text += &format!("damaged: {}; etcdrun never deletes it\n", it.why);
    }
    text
}

fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].len()).chain([head[column].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..N).map(width).collect();
    let line = |cells: Vec<&str>| {
        let cells: Vec<String> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("{}\n", cells.join("  ").trim_end())
    };
    let body = rows.iter().map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(head.to_vec())).chain(body).collect()
}

fn verify(
    shelf: &Shelf,
    which: &WhichArgs,
    name: Option<&str>,
    all: bool,
    invocation: &Invocation,
) -> Result<Exit, CliError> {
    let trust = shelf.trust(&which.cluster, shelf.unauthenticated)?;
    let runtime = runtime()?;
    let mut found = runtime.block_on(shelf.find(&which.cluster, name))?;
    found.backups.truncate(if all { usize::MAX } else { 1 });
    let newest = found.backups.first().filter(|_| !all).map(|manifest| manifest.taken);
    let mut exit = Exit::Success;
    for it in found.damaged.iter().filter(|it| newest.is_none_or(|newest| it.taken > newest)) {
        exit = Exit::TaskFailed;
        invocation.print(&format!("BAD {}: {}\n", it.name, it.why))?;
    }
    for manifest in &found.backups {
        let read = trust
            .check(&shelf.store.call(&manifest.name()), manifest)
            .and_then(|trusted| runtime.block_on(unpack(&shelf.store, &trusted, shelf.opener(), std::io::sink())));
        let text = match read {
            Ok(snapshot) => {
                format!("ok  {}: {} of revision {}\n", manifest.name(), ByteSize(snapshot.size), manifest.revision)
            }
            Err(error) => {
                exit = Exit::TaskFailed;
                format!("BAD {}: {error}\n", manifest.name())
            }
        };
        invocation.print(&text)?;
    }
    Ok(exit)
}

fn rekey(
    shelf: &Shelf,
    which: &WhichArgs,
    name: Option<&str>,
    recipients: &[String],
    invocation: &Invocation,
) -> Result<Exit, CliError> {
    let recipients = if recipients.is_empty() { shelf.section.recipients.clone() } else { recipients.to_vec() };
    if recipients.is_empty() {
        return Err(CliError::usage(
            "no recipients to encrypt to; pass --recipient, or set `backup: {recipients: [...]}` in the cluster",
        ));
    }
    parsed(&recipients)?;
    let runtime = runtime()?;
    let found = runtime.block_on(shelf.find(&which.cluster, name))?;
    let trust = shelf.trust(&which.cluster, shelf.unauthenticated)?;
    let (keys, _) = Keys::make(shelf.known.state.path(), &which.cluster).map_err(unexpected)?;
    let mut exit = if found.damaged.is_empty() { Exit::Success } else { Exit::TaskFailed };
    for it in &found.damaged {
        invocation.print(&format!("BAD     {}: {}\n", it.name, it.why))?;
    }
    for manifest in &found.backups {
        let is_done = manifest.recipients == recipients && keys.verdict(manifest) == Verdict::Authentic;
        let text = match trust.check_origin(&shelf.store.call(&manifest.name()), manifest) {
            Ok(_) if is_done => format!("ok      {}\n", manifest.name()),
            Ok(trusted) => {
                runtime.block_on(shelf.rekey(&trusted, &recipients, &keys))?;
                format!("changed {}\n", manifest.name())
            }
            Err(error) => {
                exit = Exit::TaskFailed;
                format!("BAD     {}: {error}\n", manifest.name())
            }
        };
        invocation.print(&text)?;
    }
    Ok(exit)
}

fn parsed(recipients: &[String]) -> Result<Recipients, CliError> {
    Recipients::parse(recipients.iter().map(String::as_str)).map_err(CliError::usage)
}

impl Shelf {
    /// The new file has a name of its own; the manifest, which is replaced in one step, decides which of the two counts.
    async fn rekey(&self, manifest: &Trusted, recipients: &[String], keys: &Keys) -> Result<(), CliError> {
        let file = rekeyed(&manifest.file);
        let readers = parsed(recipients)?;
        let sink = self.store.sink(&file).await.map_err(unexpected)?;
        let sealed = reseal(&self.store, manifest, self.opener(), readers, sink).await;
        let (sink, packed) = sealed.map_err(unexpected)?;
        sink.keep().await.map_err(unexpected)?;
        let new = Manifest {
            file,
            stored_size: packed.size,
            stored_sha256: packed.sha256,
            recipients: recipients.to_vec(),
            ..Manifest::clone(manifest)
        };
        let new = keys.sign(new);
        self.store.put(&new.name(), &new.text()).await.map_err(unexpected)?;
        self.store.remove(&manifest.file).await.map_err(unexpected)
    }
}

/// `prod-r1-T.db.zst.age` becomes `prod-r1-T.2.db.zst.age`, that `.3.`, and so on.
fn rekeyed(file: &str) -> String {
    let stem = file.strip_suffix(".age").unwrap_or(file);
    let stem = stem.strip_suffix(".db.zst").unwrap_or(stem);
    let (stem, number) = match stem.rsplit_once('.') {
        Some((stem, number)) if number.parse::<u32>().is_ok() => (stem, number.parse().unwrap_or(1)),
        _ => (stem, 1),
    };
    format!("{stem}.{}.db.zst.age", number + 1)
}

#[cfg(test)]
mod tests {
    use super::rekeyed;

    #[test]
    fn a_rekeyed_file_has_a_new_name() {
        assert_eq!(rekeyed("prod-r7-20261115T120000Z.db.zst"), "prod-r7-20261115T120000Z.2.db.zst.age");
        assert_eq!(rekeyed("prod-r7-20261115T120000Z.2.db.zst.age"), "prod-r7-20261115T120000Z.3.db.zst.age");
    }
}
