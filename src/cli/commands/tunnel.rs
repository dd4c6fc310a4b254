//! `etcdrun tunnel CLUSTER`: a local port that leads to the members, through SSH.

use std::path::PathBuf;

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, KnownArgs},
    site::Site,
    tunnel::{listen, members, query},
};

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  etcdrun tunnel prod --port 2379\n  etcdrun etcdctl prod -- member list -w table")]
pub struct TunnelArgs {
    /// The cluster
    cluster: String,

    /// The local port [default: a free one]
    #[arg(short, long, value_name = "PORT", default_value_t = 0, hide_default_value = true)]
    port: u16,

    /// The state directory with the certificates [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &TunnelArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = Site::load(&args.known, args.state_dir.as_deref(), invocation)?;
    let query = query(&site, &args.cluster)?;
    let hosts = site.connect(&args.connection, invocation)?;
    let served = hosts.runtime.block_on(async {
        let members = members(&hosts, &query).into();
        let address = listen(members, query.client_port, args.port).await?;
        let cluster = &args.cluster;
        let how = format!(
            "https://{address} forwards to {cluster}; press Ctrl-C to end\n  etcdrun certs export root --cluster {cluster} --to creds\n  etcdctl --endpoints https://{address} --cacert creds/ca.crt --cert creds/root.crt --key creds/root.key ...\n"
        );
        invocation.print(&how)?;
        Ok(tokio::signal::ctrl_c().await?)
    });
    hosts.leave();
    served.map(|()| Exit::Success)
}
