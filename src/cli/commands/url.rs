//! `etcdrun url [CLUSTER]`: where clients of a cluster connect to. Connects to nothing.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::KnownArgs,
    clusters::{section, the_cluster},
    query::member_addresses,
    site::Site,
};
use crate::{
    etcd::url,
    inventory::sections::{BalancerSection, EtcdSection},
};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  etcdrun url prod\n  etcdctl --endpoints \"$(etcdrun url prod --members)\" endpoint health"
)]
pub struct UrlArgs {
    /// The cluster [default: the only one]
    cluster: Option<String>,

    /// Print the URLs of all members, joined by commas, instead of the one of the load balancer
    #[arg(long)]
    members: bool,

    #[command(flatten)]
    known: KnownArgs,
}

pub fn run(args: &UrlArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = Site::load(&args.known, None, invocation)?;
    let name = the_cluster(&site.inventory, args.cluster.as_deref())?;
    let cluster =
        site.inventory.cluster(&name).ok_or_else(|| CliError::usage(format!("there is no cluster `{name}`")))?;
    let client_port = section::<EtcdSection>(cluster, "etcd")?.client_port.unwrap_or(2379);
    let urls = match args.members {
        true => member_addresses(&site.inventory, cluster).map(|address| url(&address, client_port)).collect(),
        false => match section::<Option<BalancerSection>>(cluster, "balancer")? {
            Some(balancer) => vec![url(&balancer.name, balancer.port.unwrap_or(client_port))],
            None => {
                let help =
                    "add `balancer: { name: ... }` to it (docs/balancer.md), or print the members' URLs with --members";
                return Err(CliError::usage_with_help(
                    format!("the cluster `{name}` has no load balancer"),
                    Some(help.into()),
                ));
            }
        },
    };
    match invocation.json {
        true => invocation.print(&format!("{}\n", serde_json::json!({ "cluster": name, "urls": urls })))?,
        false => invocation.print(&format!("{}\n", urls.join(",")))?,
    }
    Ok(Exit::Success)
}
