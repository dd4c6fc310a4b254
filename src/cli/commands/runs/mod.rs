//! `etcdrun runs`: what was run, and what came of it.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io::{BufRead as _, BufReader},
};

use clap::{Args, Subcommand};
use serde_json::{Value, json};

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::StateArgs,
    record::{KEPT_RUNS, state_of},
};
use crate::{
    report::sanitize,
    state::{RunSummary, StateFolder, StoredRun},
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
    Show {
        /// The run, or the start of its ID
        id: String,

        #[command(flatten)]
        state: StateArgs,
    },
    /// Delete old runs that are done
    Prune {
        /// Number of runs to keep
        #[arg(long, value_name = "N", default_value_t = KEPT_RUNS)]
        keep: usize,

        /// Also delete runs that could still be resumed
        #[arg(long)]
        unfinished: bool,

        #[command(flatten)]
        state: StateArgs,
    },
}

pub fn run(args: &RunsCommand, invocation: &Invocation) -> Result<Exit, CliError> {
    let text = match &args.what {
        None => list(&state_of(&args.state, invocation), invocation.json)?,
        Some(What::Show { id, state }) => {
            let run = state_of(&either(state, &args.state), invocation).find(id)?;
            show(&run, invocation.json)
        }
        Some(What::Prune { keep, unfinished, state }) => {
            let removed = state_of(&either(state, &args.state), invocation).prune(*keep, *unfinished)?;
            let ids: Vec<_> = removed.iter().map(ToString::to_string).collect();
            match invocation.json {
                true => format!("{}\n", json!({ "removed": ids })),
                false => format!("{} deleted\n", ids.len()),
            }
        }
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

fn show(run: &StoredRun, as_json: bool) -> String {
    let (summary, nodes) = (run.summary(), run.nodes());
    let messages = messages(run);
    if as_json {
        let node = |node: &crate::state::NodeSummary| json!({ "id": node.id, "state": node.state, "seconds": node.seconds, "msg": messages.get(&*node.id) });
        let nodes: Vec<_> = nodes.iter().map(node).collect();
        return format!("{}\n", json!({ "run": summary, "nodes": nodes }));
    }
    let mut text = format!(
        "run      {}\nstarted  {}\nstate    {}\ncommand  etcdrun {}\n",
        summary.id,
        when(summary.at),
        summary.state.name(),
        sanitize(&summary.command.join(" "))
    );
    if let Some(operator) = &summary.operator {
        let _ = writeln!(text, "by       {}@{}, process {}", operator.user, operator.host, operator.pid);
    }
    let _ = writeln!(text, "tasks    {} of {} done, {} changed\n", summary.done, summary.nodes, summary.changed);
    for node in &nodes {
        let _ = writeln!(text, "{:<12} {}", node.state, sanitize(&node.id));
        if let Some(msg) = messages.get(&*node.id).filter(|_| !matches!(node.state, "ok" | "changed" | "skipped")) {
            let _ = writeln!(text, "             {}", sanitize(msg));
        }
    }
    if summary.state.is_unfinished() && summary.in_doubt > 0 {
        let _ = writeln!(
            text,
            "\nIn doubt: inspect the host, then run `etcdrun resume {} --assume done|not-run ID`.",
            summary.id
        );
    }
    text
}

/// The last message of each node, from the events; these have been made fit to be seen.
fn messages(run: &StoredRun) -> HashMap<String, String> {
    let Ok(file) = std::fs::File::open(run.events()) else { return HashMap::new() };
    let events = BufReader::new(file).lines().map_while(Result::ok);
    let mut messages = HashMap::new();
    for event in events.filter_map(|line| serde_json::from_str::<Value>(&line).ok()) {
        let msg = event["result"]["msg"].as_str().filter(|msg| !msg.is_empty());
        if let (Some("node_finished"), Some(id), Some(msg)) =
            (event["event"].as_str(), event["node"]["id"].as_str(), msg)
        {
            messages.insert(id.to_owned(), msg.to_owned());
        }
    }
    messages
}
