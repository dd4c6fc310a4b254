//! `etcdrun ssh HOST`: a shell or a command on a host, reached as the inventory says.

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, KnownArgs},
    shell::{at, quote},
    site::Site,
};

#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  etcdrun ssh etcd-1\n  etcdrun ssh hv1 -- virsh list")]
pub struct SshArgs {
    /// The host: a member, a hypervisor or any other of the inventory
    host: String,

    /// A command instead of a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &SshArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let hosts = Site::load(&args.known, None, invocation)?.connect(&args.connection, invocation)?;
    let host = hosts.host(&args.host)?.clone();
    let command =
        (!args.command.is_empty()).then(|| args.command.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" "));
    at(hosts, &host, command.as_deref())
}
