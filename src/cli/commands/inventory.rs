//! `etcdrun inventory list|host NAME|graph`: the inventory as it was understood.

use clap::{Args, Subcommand};

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{KeyArgs, KnownArgs, LimitArgs},
    input::Opening,
    site::{Files, Site},
};
use crate::{
    inventory::{HostId, Inventory, render},
    source::did_you_mean,
};

#[derive(Args, Debug)]
pub struct InventoryCommand {
    #[command(subcommand)]
    view: View,

    /// Inventory file, directory or executable; several are merged [default: inventory/ or inventory.yaml]
    #[arg(short, long, value_name = "PATH", global = true)]
    inventory: Vec<std::path::PathBuf>,

    #[command(flatten)]
    keys: KeyArgs,
}

#[derive(Subcommand, Debug)]
enum View {
    /// List the hosts; with --json, everything in the form that Ansible's `--list` has
    List(LimitArgs),
    /// Show a host with all its variables, and where each variable comes from
    Host {
        /// The host
        name: String,
    },
    /// Show the groups as a tree
    Graph,
}

pub fn run(args: &InventoryCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let known = KnownArgs { inventory: args.inventory.clone(), keys: args.keys.clone() };
    let mut site = Site::load_as_if(Files::new(), Opening::FilesOnly, &known, None, invocation)?;
    let only = match &args.view {
        View::List(LimitArgs { limit }) => site.select(limit.as_deref(), invocation)?,
        View::Host { .. } | View::Graph => None,
    };
    let Site { inventory, sources, .. } = site;
    let text = match &args.view {
        View::List(_) if invocation.json => format!("{:#}\n", render::list_json(&inventory, only.as_deref())),
        View::List(_) => render::list_text(&inventory, only.as_deref()),
        View::Graph if invocation.json => format!("{:#}\n", render::graph_json(&inventory)),
        View::Graph => render::graph_text(&inventory),
        View::Host { name } => {
            let host = find_host(&inventory, name)?;
            match invocation.json {
                true => format!("{:#}\n", render::host_json(&inventory, host, &sources)),
                false => render::host_text(&inventory, host, &sources),
            }
        }
    };
    invocation.print(&text)?;
    Ok(Exit::Success)
}

fn find_host(inventory: &Inventory, name: &str) -> Result<HostId, CliError> {
    if let Some(host) = inventory.host(name) {
        return Ok(host.id);
    }
    let help = did_you_mean(name, inventory.hosts().map(|host| host.name.as_str()));
    let help = help.or_else(|| Some("`etcdrun inventory list` shows all hosts".to_owned()));
    Err(CliError::usage_with_help(format!("there is no host `{name}` in the inventory"), help))
}
