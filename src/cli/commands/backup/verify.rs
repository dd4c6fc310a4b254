//! `etcdrun backup verify CLUSTER [NAME]`: reads backups completely.

use clap::Args;

use super::WhichArgs;
use crate::cli::support::{CliError, Exit, Invocation, runtime::runtime};
use crate::{backup::unpack, model::ByteSize};

#[derive(Args, Debug)]
pub struct VerifyArgs {
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
}

pub fn run(args: &VerifyArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let (cluster, all) = (&args.which.cluster, args.all);
    let shelf = args.which.shelf(invocation)?;
    let trust = shelf.trust(cluster, args.unauthenticated)?;
    let runtime = runtime()?;
    let mut found = runtime.block_on(shelf.find(cluster, args.name.as_deref()))?;
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
