//! `etcdrun runs show ID`: the tasks of a run.

use std::{
    collections::HashMap,
    fmt::Write as _,
    io::{BufRead as _, BufReader},
};

use clap::Args;
use serde_json::{Value, json};

use super::{either, when};
use crate::cli::support::{CliError, Invocation, args::StateArgs, record::state_of};
use crate::{report::sanitize, state::StoredRun};

#[derive(Args, Debug)]
pub struct ShowArgs {
    /// The run, or the start of its ID
    id: String,

    #[command(flatten)]
    state: StateArgs,
}

pub fn run(args: &ShowArgs, outer: &StateArgs, invocation: &Invocation) -> Result<String, CliError> {
    let run = state_of(&either(&args.state, outer), invocation).find(&args.id)?;
    Ok(show(&run, invocation.json))
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
