//! `etcdrun certs export USER`: a user's certificate and key, for other tools.

use std::{
    fs::{self, DirBuilder},
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
};

use clap::Args;

use super::{Common, OfCluster};
use crate::cli::support::{CliError, Exit, Invocation, clusters::the_cluster};
use crate::{
    pki::{Keeping, Store},
    state_folder::write_private,
};

#[derive(Args, Debug)]
pub struct ExportArgs {
    /// The user
    user: String,
    /// The directory; it is created if it is missing
    #[arg(long, value_name = "FOLDER", default_value = ".")]
    to: PathBuf,
    #[command(flatten)]
    of: OfCluster,
}

pub fn run(args: &ExportArgs, common: &Common, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = common.site(invocation)?;
    let store = Store::new(site.state.path(), &the_cluster(&site.inventory, args.of.cluster.as_deref())?);
    let keeping = Keeping { store: &store, opener: site.sources.opener() };
    let user = args.user.as_str();
    let nothing = || {
        let help = Some(format!("`etcdrun certs issue {user}` creates one"));
        CliError::usage_with_help(format!("there is no certificate for `{user}` here"), help)
    };
    let (certificate, key) = keeping.client(user)?.ok_or_else(nothing)?;
    let authority = store.trusted()?.ok_or_else(nothing)?;
    DirBuilder::new().recursive(true).mode(0o700).create(&args.to)?;
    let folder = fs::canonicalize(&args.to)?;
    let mut text = String::new();
    for (name, body) in
        [("ca.crt".to_owned(), &authority), (format!("{user}.crt"), &certificate), (format!("{user}.key"), &*key)]
    {
        let path = folder.join(name);
        write_private(&path, body.as_bytes())?;
        text += &format!("{}\n", path.display());
    }
    invocation.print(&text)?;
    Ok(Exit::Success)
}
