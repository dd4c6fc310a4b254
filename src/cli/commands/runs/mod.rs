//! `etcdrun runs`: what was run, and what came of it.

mod prune;
mod show;

use std::fmt::Write as _;

use clap::{Args, Subcommand};
use serde_json::json;

use crate::cli::support::{CliError, Exit, Invocation, args::StateArgs, record::state_of};
use crate::{
    report::sanitize,
    state::{RunSummary, StateFolder},
};

#[derive(Args, Debug)]
pub struct RunsCommand {
    #[command(subcommand)]
    what: Option<What>,

    #[command(flatten)]
    state: StateArgs,
}

#[derive(Subcommand, Debug)]
enum What {
    /// Show the tasks of a run with their outcome, and what is in doubt
    Show(show::ShowArgs),
    /// Delete old runs that are done
    Prune(prune::PruneArgs),
}

pub fn run(args: &RunsCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let text = match &args.what {
        None => list(&state_of(&args.state, invocation), invocation.json)?,
        Some(What::Show(inner)) => show::run(inner, &args.state, invocation)?,
        Some(What::Prune(inner)) => prune::run(inner, &args.state, invocation)?,
    };
    invocation.print(&text)?;
    Ok(Exit::Success)
}

/// Options may stand before or behind the word for what to do.
fn either(inner: &StateArgs, outer: &StateArgs) -> StateArgs {
    StateArgs {
        inventory: if inner.inventory.is_empty() { outer.inventory.clone() } else { inner.inventory.clone() },
        state_dir: inner.state_dir.clone().or_else(|| outer.state_dir.clone()),
    }
}

fn list(state: &StateFolder, as_json: bool) -> Result<String, CliError> {
    let mut runs = Vec::new();
    let mut broken = String::new();
    for id in state.ids().iter().rev() {
        match state.open(id) {
            Ok(run) => runs.push(run.summary()),
            Err(error) => {
                let _ = writeln!(broken, "{id}: {error}");
            }
        }
    }
    if as_json {
        return Ok(format!("{}\n", json!(runs)));
    }
    if runs.is_empty() && broken.is_empty() {
        return Ok(format!("no runs in {}\n", state.path().display()));
    }
    let head = ["run", "began", "state", "done", "changed", "failed", "in doubt", "command"].map(str::to_owned);
    let rows = std::iter::once(head).chain(runs.iter().map(row));
    Ok(table(&rows.collect::<Vec<_>>()) + &broken)
}

fn row(run: &RunSummary) -> [String; 8] {
    [
        run.id.clone(),
        when(run.at),
        run.state.name().to_owned(),
        format!("{}/{}", run.done, run.nodes),
        run.changed.to_string(),
        run.failed.to_string(),
        (run.in_doubt + run.in_flight).to_string(),
        sanitize(&run.command.join(" ")).into_owned(),
    ]
}

fn when(at: i64) -> String {
    let time = jiff::Timestamp::from_millisecond(at).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Columns as wide as what is in them; the last one is as long as it is.
fn table<const N: usize>(rows: &[[String; N]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<_> = (0..N).map(width).collect();
    let line = |row: &[String; N]| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}"));
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned() + "\n"
    };
    rows.iter().map(line).collect()
}
