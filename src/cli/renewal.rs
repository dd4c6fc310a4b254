//! `etcdrun certs renew|rotate-ca`: the playbooks that ship for it, run like any other.

use std::{path::PathBuf, time::Duration};

use clap::Args;
use serde_json::{Value, json};

use super::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, InventoryArgs, RunArgs, duration},
    certs::{Holders, find_cluster, listing},
    record::{Resumed, state_folder},
    verb,
};
use crate::{
    inventory::Inventory,
    model::RunResult,
    pki::{RotationPhase, Store},
    state::{Record, StateError},
};

/// Longer than any certificate.
const ALWAYS: Duration = Duration::from_secs(36_500 * 86_400);

#[derive(Args, Debug)]
pub struct RenewArgs {
    /// The clusters [default: all]
    #[arg(value_name = "CLUSTER")]
    clusters: Vec<String>,

    /// Also renew what expires within this time, like 90d
    #[arg(long, value_name = "TIME", value_parser = duration)]
    early: Option<Duration>,

    /// Renew all certificates
    #[arg(long, conflicts_with = "early")]
    all: bool,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Each phase is a run of its own, which you can plan (--check), resume, and repeat. Between the phases, update the clients:\n  1. etcdrun certs rotate-ca prod            members trust both CAs; then give ca.crt to all clients\n  2. etcdrun certs rotate-ca prod --issue    the new CA signs; then give all clients their new certificates\n  3. etcdrun certs rotate-ca prod --finish   the old CA is no longer trusted\n  --abandon undoes the first phase. --expired is for a CA that has expired: members can no longer verify each other."
)]
pub struct RotateArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    name: String,

    /// The second phase, after all clients have the new ca.crt: the new CA signs
    #[arg(long)]
    issue: bool,

    /// The last phase, after all clients have certificates of the new CA: the old CA is no longer trusted
    #[arg(long, conflicts_with = "issue")]
    finish: bool,

    /// Drop the new CA, in the first phase: members trust only the old one again
    #[arg(long, conflicts_with_all = ["issue", "finish"])]
    abandon: bool,

    /// The CA has expired: replace it at once, over SSH only. All members restart together
    #[arg(long, conflicts_with_all = ["issue", "finish", "abandon"])]
    expired: bool,

    /// Accept loss of quorum while a member restarts (required for clusters with one or two members)
    #[arg(long)]
    allow_outage: bool,

    /// Do not prompt
    #[arg(short, long)]
    yes: bool,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// What the verbs of `certs` share.
pub(super) struct Common {
    pub inventory: InventoryArgs,
    pub state_dir: Option<PathBuf>,
}

pub(super) fn renew(args: &RenewArgs, common: Common, invocation: &Invocation) -> Result<Exit, CliError> {
    let early = if args.all { Some(ALWAYS) } else { args.early };
    let early = early.map(|early| json!({ "etcd_early_renewal": format!("{}s", early.as_secs()) }));
    let how = (&args.run, &args.connection);
    let play = play("certificates.yaml", &args.clusters, early.as_ref(), common.inventory, how);
    let compiled = play.compile(invocation)?;
    let state = match &invocation.resumed {
        Some(resumed) => resumed.state.clone(),
        None => state_folder(common.state_dir.as_deref(), &compiled.input.inventories, invocation),
    };
    let holders = holders(&compiled.inventory, &args.clusters)?;
    let rows = |holders: &[Holders]| -> Result<Vec<_>, CliError> {
        let rows: Result<Vec<_>, _> = holders.iter().map(|holders| holders.rows(state.path())).collect();
        Ok(rows?.into_iter().flatten().collect())
    };
    let before = rows(&holders)?;
    let ended = play.run(compiled, invocation)?;
    if !invocation.json && !args.run.check {
        let mut now = rows(&holders)?;
        for row in now.iter_mut().filter(|row| !before.iter().any(|before| before.is_like(row))) {
            row.note = Some("renewed".to_owned());
        }
        invocation.print(&format!("\n{}", listing(&now, false)))?;
    }
    Ok(ended.exit(false))
}

pub(super) fn rotate(args: &RotateArgs, common: Common, invocation: &Invocation) -> Result<Exit, CliError> {
    let phase = match (args.issue, args.finish) {
        (true, _) => RotationPhase::Issue,
        (_, true) => RotationPhase::Finish,
        _ => RotationPhase::Trust,
    };
    if let Some(resumed) = &invocation.resumed {
        has_begun(args, phase, resumed)?;
    }
    let playbook = if args.expired { "replace-ca.yaml" } else { "rotate-ca.yaml" };
    let clusters = [args.name.clone()];
    let vars = json!({
        "rotate_ca": if args.abandon { "abandon" } else { phase.name() },
        "rollout_allow_outage": args.allow_outage,
    });
    let play = play(playbook, &clusters, Some(&vars), common.inventory, (&args.run, &args.connection));
    let compiled = play.compile(invocation)?;
    holders(&compiled.inventory, &clusters)?;
    verb::confirm(&args.question(phase), args.yes, args.run.check, invocation)?;
    Ok(play.run(compiled, invocation)?.exit(false))
}

impl RotateArgs {
    /// What the operator has to know before the phase begins.
    fn question(&self, phase: RotationPhase) -> String {
        let cluster = &self.name;
        match phase {
            _ if self.expired => format!("Replace the expired CA of {cluster}? All members restart at the same time."),
            _ if self.abandon => format!("Drop the new CA of {cluster}? Members restart one at a time."),
            RotationPhase::Trust => {
                format!("Create a second CA for {cluster} and trust both? Members restart one at a time.")
            }
            RotationPhase::Issue => {
                format!("Issue certificates of the new CA to {cluster}? All clients need the new ca.crt before.")
            }
            RotationPhase::Finish => format!(
                "Stop trusting the old CA of {cluster}? All clients need certificates of the new CA before. This cannot be undone."
            ),
        }
    }
}

/// Whether a phase may go on that was begun earlier. One that was refused has not begun: what stood against it may be mended
/// since, but nobody has said again that all clients are ready for it.
fn has_begun(args: &RotateArgs, phase: RotationPhase, resumed: &Resumed) -> Result<(), CliError> {
    let records = || resumed.run.journal.lines.iter().map(|line| &line.record);
    let was_refused = records().any(|record| matches!(record, Record::Ended { result: RunResult::GateRefused }));
    let has_changed = records().any(|record| matches!(record, Record::Settled { changed: true, .. }));
    let there = Store::new(resumed.state.path(), &args.name).rotation().ok().flatten();
    if !was_refused || has_changed || there.is_some_and(|there| there.phase == phase) {
        return Ok(());
    }
    let flag = match phase {
        _ if args.abandon => " --abandon",
        _ if args.expired => " --expired",
        RotationPhase::Trust => "",
        RotationPhase::Issue => " --issue",
        RotationPhase::Finish => " --finish",
    };
    let why = format!(
        "the phase was refused before anything changed; when all clients are ready, run: etcdrun certs rotate-ca {}{flag}",
        args.name
    );
    Err(StateError::NotResumable(resumed.run.id.to_string(), why).into())
}

/// What the playbook of a verb is played with: the clusters that are named, or all.
fn play<'a>(
    playbook: &'a str,
    clusters: &[String],
    vars: Option<&Value>,
    inventory: InventoryArgs,
    (run, connection): (&'a RunArgs, &'a ConnectionArgs),
) -> verb::Play<'a> {
    let limit = (!clusters.is_empty()).then(|| clusters.join(","));
    let hosts = InventoryArgs { limit, ..inventory };
    verb::Play { playbook, hosts, extra_vars: vars.iter().map(ToString::to_string).collect(), run, connection }
}

/// Who has certificates in the clusters that are meant. A name that is no cluster's is an error, also if it is a host's.
fn holders(inventory: &Inventory, clusters: &[String]) -> Result<Vec<Holders>, CliError> {
    let all = || inventory.clusters().map(|cluster| cluster.name.to_string()).collect();
    let names: Vec<String> = if clusters.is_empty() { all() } else { clusters.to_vec() };
    names.iter().map(|name| Ok(Holders::of(inventory, &find_cluster(inventory, name)?))).collect()
}
