//! `etcdrun plan FILE...`: load, compile, run in check mode, and tell what would change.

use clap::Args;

use super::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, InventoryArgs, RunArgs, SelectionArgs},
    input::{Opening, compile_all},
    run::{self, Style},
};

#[derive(Args, Debug)]
#[command(
    after_help = "Each task would change something (then a diff shows what), would change nothing, or it is not known, because it follows\nfrom a change that an earlier task would make, or is a command. Nothing is changed, and no lock is taken.\n\nExamples:\n  etcdrun plan site.yaml\n  etcdrun plan site.yaml --detailed-exitcode; [ $? = 2 ] && echo there is something to do"
)]
pub struct PlanArgs {
    /// Playbooks: paths, or names in ./playbooks or of those that come with etcdrun
    #[arg(required = true, value_name = "FILE")]
    playbooks: Vec<String>,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    /// How many tasks may run at once, on all hosts together [default: 50]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..), help_heading = "Run")]
    forks: Option<u32>,

    /// Exit with 0 if nothing would change, with 2 if something would or might, with 1 if a task fails
    #[arg(long, help_heading = "Run")]
    detailed_exitcode: bool,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &PlanArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let load = run::load_options(invocation);
    let compiled = compile_all(&args.playbooks, &args.inventory, &args.selection, &load, Opening::All, invocation)?;
    let looks = RunArgs { forks: args.forks, check: true, diff: true, ..RunArgs::default() };
    let ended = run::execute(compiled, &args.connection, &looks, Style::Plan, invocation)?;
    Ok(ended.exit(args.detailed_exitcode))
}
