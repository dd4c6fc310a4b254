//! `etcdrun graph FILE`: prints the task graph. Connects to nothing, unless it is told to observe.

use clap::{Args, ValueEnum};

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, InventoryArgs, SelectionArgs},
    input::{Opening, compile_all},
    run::{foresee, load_options},
};
use crate::graph;

#[derive(Args, Debug)]
pub struct GraphArgs {
    /// A playbook: a path, a name in ./playbooks, or a shipped playbook
    #[arg(value_name = "FILE")]
    playbook: String,

    /// The output format
    #[arg(long, value_enum, default_value_t = Format::Dot)]
    format: Format,

    /// Read the facts of the hosts, and show which conditions are true; without this, etcdrun does not connect
    #[arg(long)]
    observe: bool,

    #[command(flatten)]
    connection: ConnectionArgs,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    selection: SelectionArgs,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// For Graphviz: `| dot -Tsvg`
    Dot,
    /// For Markdown
    Mermaid,
    /// For programs
    Json,
}

pub fn run(args: &GraphArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let load = load_options(invocation);
    let names = std::slice::from_ref(&args.playbook);
    let opening = Opening::FilesOnly;
    let compiled = compile_all(names, &args.inventory, &args.selection, &load, opening, invocation)?;
    let format = match args.format {
        _ if invocation.json => graph::Format::Json,
        Format::Dot => graph::Format::Dot,
        Format::Mermaid => graph::Format::Mermaid,
        Format::Json => graph::Format::Json,
    };
    for text in foresee(compiled, &args.connection, args.observe, format, invocation)? {
        invocation.print(&text)?;
    }
    Ok(Exit::Success)
}
