//! `etcdrun plan FILE`: load, compile, run in check mode, and tell what would change.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{CheckArgs, ConnectionArgs, InventoryArgs, RunArgs, SelectionArgs},
    input::{Opening, compile_all},
    planned::not_run,
    record,
    run::{self, Ended, Style},
};
use crate::{
    graph::Graph,
    model::RunResult,
    state::{PlanFile, PlannedGraph},
};

#[derive(Args, Debug)]
#[command(
    after_help = "For each task, the plan shows that it would change something (with a diff), that it would change nothing, or that the outcome is unknown, because it depends on a change of an earlier task, or because the task is a command. A plan changes nothing and takes no lock.\n\nExamples:\n  etcdrun plan site.yaml\n  etcdrun plan site.yaml --out site.plan && etcdrun playbook --plan site.plan\n  etcdrun plan site.yaml --detailed-exitcode; [ $? = 2 ] && echo there is something to do"
)]
pub struct PlanArgs {
    /// The playbook: a path, a name in ./playbooks, or a shipped playbook
    #[arg(value_name = "FILE")]
    playbook: String,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    selection: SelectionArgs,

    /// Save the plan; `playbook --plan` runs exactly this plan, or nothing if it is out of date
    #[arg(long, value_name = "PLAN", help_heading = "Run")]
    out: Option<PathBuf>,

    /// Maximum number of concurrent tasks, on all hosts together [default: 50]
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
    let names = [args.playbook.clone()];
    let mut compiled = compile_all(&names, &args.inventory, &args.selection, &load, Opening::All, invocation)?;
    let (inputs, used) = (compiled.inputs.clone(), compiled.input.sources.note_used());
    let fingerprints: Vec<_> = compiled.graphs.iter().map(Graph::fingerprint).collect();
    let looks = RunArgs { forks: args.forks, mode: CheckArgs { check: true }, diff: true, ..RunArgs::default() };
    let ended = run::execute(compiled, &args.connection, &looks, Style::Plan, invocation)?;
    if let Some(path) = &args.out {
        save(path, &ended, fingerprints, |graphs| {
            let bundle = record::bundle(playbook_command(&invocation.command), &inputs, invocation)?;
            Ok(PlanFile::new(bundle, &inputs, graphs, used.all()))
        })?;
        if !invocation.json {
            invocation.print(&format!("Saved: `etcdrun playbook --plan {}` runs exactly this\n", path.display()))?;
        }
    }
    Ok(ended.exit(args.detailed_exitcode))
}

fn save(
    path: &Path,
    ended: &Ended,
    fingerprints: Vec<String>,
    plan: impl FnOnce(Vec<PlannedGraph>) -> Result<PlanFile, CliError>,
) -> Result<(), CliError> {
    if ended.result != RunResult::Success {
        return Err(not_run(path, "the plan was not saved, because not everything could be planned"));
    }
    let predictions = ended.predictions.iter().cloned();
    let graphs = fingerprints.into_iter().zip(predictions);
    let graphs = graphs.map(|(fingerprint, predictions)| PlannedGraph { fingerprint, predictions }).collect();
    Ok(plan(graphs)?.save(path)?)
}

/// The command line that runs what this one plans.
fn playbook_command(words: &[String]) -> Vec<String> {
    let mut command = Vec::new();
    let mut words = words.iter();
    let mut is_named = false;
    while let Some(word) = words.next() {
        match word.as_str() {
            "plan" if !is_named => {
                is_named = true;
                command.push("playbook".to_owned());
            }
            "--out" => drop(words.next()),
            word if word.starts_with("--out=") || word == "--detailed-exitcode" => {}
            word => command.push(word.to_owned()),
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::playbook_command;

    #[test]
    fn what_is_planned_is_run_by_a_command_line_of_its_own() {
        let said = |words: &str| playbook_command(&words.split(' ').map(str::to_owned).collect::<Vec<_>>()).join(" ");
        assert_eq!(said("--json plan plan --out p -i x --detailed-exitcode"), "--json playbook plan -i x");
        assert_eq!(said("plan site.yaml --out=p -e a=1"), "playbook site.yaml -e a=1");
    }
}
