//! `etcdrun console MEMBER`: the console of a member's guest, on its hypervisor.

use std::io::{self, IsTerminal};

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, KnownArgs},
    shell::{at, quote},
    site::Site,
};

/// Root, or a user that may become root.
const AS_ROOT: &str = r#"[ "$(id -u)" = 0 ] || sudo=sudo; exec $sudo "#;

#[derive(Args, Debug)]
pub struct ConsoleArgs {
    /// The member, or another guest by the name of its member
    member: String,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &ConsoleArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let hosts = Site::load(&args.known, None, invocation)?.connect(&args.connection, invocation)?;
    let member = hosts.host(&args.member)?;
    let hypervisor = hosts.inventory.hypervisor_of(member.id).ok_or_else(|| {
        let help = format!("`etcdrun ssh {}` logs in", args.member);
        CliError::usage_with_help(format!("`{}` has no hypervisor, so it has no console", args.member), Some(help))
    })?;
    if !io::stdin().is_terminal() {
        return Err(CliError::usage("a console needs a terminal"));
    }
    let hypervisor = hypervisor.clone();
    eprintln!("the console of {} on {}; press Ctrl-] to exit", args.member, hypervisor.name);
    let command = format!("{AS_ROOT}virsh --connect qemu:///system console {}", quote(&args.member));
    at(hosts, &hypervisor, Some(&command))
}
