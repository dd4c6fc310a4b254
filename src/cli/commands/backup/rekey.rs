//! `etcdrun backup rekey CLUSTER [NAME]`: encrypts backups again, for other keys.

use clap::Args;

use super::WhichArgs;
use crate::cli::support::{
    CliError, Exit, Invocation,
    args::CheckArgs,
    runtime::runtime,
    shelf::{Shelf, unexpected},
};
use crate::{
    backup::{Keys, Manifest, Trusted, Verdict, reseal},
    secret::Recipients,
};

#[derive(Args, Debug)]
pub struct RekeyArgs {
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

    #[command(flatten)]
    mode: CheckArgs,
}

pub fn run(args: &RekeyArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let cluster = &args.which.cluster;
    let shelf = args.which.shelf(invocation)?;
    let recipients = if args.recipient.is_empty() { &shelf.section.recipients } else { &args.recipient }.clone();
    if recipients.is_empty() {
        return Err(CliError::usage(
            "no recipients to encrypt to; pass --recipient, or set `backup: {recipients: [...]}` in the cluster",
        ));
    }
    parsed(&recipients)?;
    let runtime = runtime()?;
    let found = runtime.block_on(shelf.find(cluster, args.name.as_deref()))?;
    let trust = shelf.trust(cluster, args.unauthenticated)?;
    let keys = match args.mode.check {
        true => shelf.keys(cluster)?,
        false => Keys::make(shelf.site.state.path(), cluster).map_err(unexpected)?.0,
    };
    let mut exit = if found.damaged.is_empty() { Exit::Success } else { Exit::TaskFailed };
    for it in &found.damaged {
        invocation.print(&format!("BAD     {}: {}\n", it.name, it.why))?;
    }
    for manifest in &found.backups {
        let is_done = manifest.recipients == recipients && keys.verdict(manifest) == Verdict::Authentic;
        let text = match trust.check_origin(&shelf.store.call(&manifest.name()), manifest) {
            Ok(_) if is_done => format!("ok      {}\n", manifest.name()),
            Ok(_) if args.mode.check => format!("would change {}\n", manifest.name()),
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
