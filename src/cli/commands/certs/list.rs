//! `etcdrun certs list`: CAs, and the certificates that they have issued.

use clap::Args;

use super::{Common, OfCluster};
use crate::cli::support::{
    CliError, Exit, Invocation,
    issued::{holders, listing},
};

/// What a list of certificates is not.
const ISSUED: &str = "Certificates issued here. `etcdrun status` shows the ones that members use.\n";

#[derive(Args, Debug)]
pub struct ListArgs {
    #[command(flatten)]
    of: OfCluster,
}

pub fn run(args: &ListArgs, common: &Common, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = common.site(invocation)?;
    let mut rows = Vec::new();
    for holders in holders(&site.inventory, args.of.cluster.as_slice())? {
        rows.extend(holders.rows(site.state.path())?);
    }
    invocation.print(&listing(&rows, invocation.json))?;
    if !invocation.json && rows.iter().any(|row| row.kind == "member") {
        invocation.print(ISSUED)?;
    }
    Ok(Exit::Success)
}
