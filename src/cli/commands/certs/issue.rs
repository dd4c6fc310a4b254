//! `etcdrun certs issue USER`: a certificate for a user of etcd.

use std::sync::Arc;

use clap::Args;

use super::{Common, OfCluster};
use crate::cli::support::{
    CliError, Exit, Invocation,
    clusters::{section, the_cluster},
    runtime::runtime,
};
use crate::{
    inventory::sections::TlsSection,
    pki::{Authority, Certificate, Keeping, Renewal, Store},
};

#[derive(Args, Debug)]
pub struct IssueArgs {
    /// The user; it becomes the common name
    user: String,
    /// Issue a new key and certificate in any case
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    of: OfCluster,
}

pub fn run(args: &IssueArgs, common: &Common, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = common.site(invocation)?;
    let cluster = the_cluster(&site.inventory, args.of.cluster.as_deref())?;
    let store = Store::new(site.state.path(), &cluster);
    let user = args.user.as_str();
    if site.inventory.host(user).is_some() {
        return Err(CliError::usage(format!(
            "`{user}` is a host: its certificate would also authenticate as a user of that name"
        )));
    }
    let tls: TlsSection =
        site.inventory.cluster(&cluster).map(|cluster| section(cluster, "tls")).transpose()?.unwrap_or_default();
    let keeping = Keeping { store: &store, opener: site.sources.opener() };
    let authority = Authority::open(&tls, &keeping)?;
    let Some(authority) = authority.map(Arc::new) else {
        let help = Some("`etcdrun playbook site.yaml` creates it".to_owned());
        return Err(CliError::usage_with_help(format!("the cluster `{cluster}` has no CA yet"), help));
    };
    let renewal = if args.force { Renewal::Always } else { Renewal::IfNeeded };
    let issued = runtime()?.block_on(authority.client(user, &tls, &keeping, renewal))?;
    let (certificate, key) = store.client_paths(user);
    let until = Certificate::parse(&issued.certificate)?.not_after;
    let text = format!(
        "{} until {until}\n  {}\n  {}\n  {}, encrypted; `etcdrun certs export {user} --cluster {cluster}` writes it for other tools\n",
        if issued.is_new { "issued" } else { "good" },
        store.certificate_path().display(),
        certificate.display(),
        key.display()
    );
    invocation.print(&text)?;
    Ok(Exit::Success)
}
