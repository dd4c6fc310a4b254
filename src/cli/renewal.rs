//! `etcdrun certs renew|rotate-ca`: the playbooks that ship for it, run like any other.

use std::{path::PathBuf, time::Duration};

use clap::Args;

use super::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, InventoryArgs, RunArgs, SelectionArgs, VarsArgs, duration},
    certs::{Holders, find_cluster, listing},
    input::{Compiled, Opening, compile_all},
    record::{Resumed, state_folder},
    run::{self, Style},
};
use crate::{
    inventory::Inventory,
    model::RunResult,
    pki::{RotationPhase, Store},
    playbook,
    state::{Record, StateError},
};

/// Longer than any certificate.
const ALWAYS: Duration = Duration::from_secs(36_500 * 86_400);

#[derive(Args, Debug)]
pub struct RenewArgs {
    /// The clusters; all of them if none is named
    #[arg(value_name = "CLUSTER")]
    clusters: Vec<String>,

    /// Renew also what ends within this time, like 90d
    #[arg(long, value_name = "TIME", value_parser = duration)]
    early: Option<Duration>,

    /// Renew all of them, whenever they end
    #[arg(long, conflicts_with = "early")]
    all: bool,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

#[derive(Args, Debug)]
#[command(
    after_help = "Each phase is a run of its own, which can be planned (--check), resumed, and repeated. Between them:\n  1. etcdrun certs rotate-ca prod            members trust both authorities; then give ca.crt to all clients\n  2. etcdrun certs rotate-ca prod --issue    the new one signs; then give all clients their new certificates\n  3. etcdrun certs rotate-ca prod --finish   the old one is not trusted any more\n  --abandon takes the first one back. --expired is for an authority that has ended: nobody can check anybody by it any more."
)]
pub struct RotateArgs {
    /// The cluster
    #[arg(value_name = "CLUSTER")]
    name: String,

    /// The second phase, once all clients have the new ca.crt: the new authority signs
    #[arg(long)]
    issue: bool,

    /// The last phase, once all clients have certificates of the new authority: the old one is not trusted any more
    #[arg(long, conflicts_with = "issue")]
    finish: bool,

    /// Give the new authority up, in the first phase: members come back to the old one alone
    #[arg(long, conflicts_with_all = ["issue", "finish"])]
    abandon: bool,

    /// The authority has ended already: replace it at once, by SSH alone. All members restart together
    #[arg(long, conflicts_with_all = ["issue", "finish", "abandon"])]
    expired: bool,

    /// Go on although the cluster stops answering meanwhile, as one of one or two members does
    #[arg(long)]
    allow_outage: bool,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

/// What the verbs of `certs` share.
pub(super) struct Common {
    pub inventory: InventoryArgs,
    pub cluster: Option<String>,
    pub state_dir: Option<PathBuf>,
}

pub(super) fn renew(args: &RenewArgs, common: Common, invocation: &Invocation) -> Result<Exit, CliError> {
    let clusters: Vec<String> = args.clusters.iter().chain(&common.cluster).cloned().collect();
    let early = if args.all { Some(ALWAYS) } else { args.early };
    let early = early.map(|early| serde_json::json!({ "etcd_early_renewal": format!("{}s", early.as_secs()) }));
    let play = Play { playbook: "certificates", clusters, vars: early, run: &args.run, connection: &args.connection };
    let compiled = play.compile(common.inventory, invocation)?;
    let state = match &invocation.resumed {
        Some(resumed) => resumed.state.clone(),
        None => state_folder(common.state_dir.as_deref(), &compiled.input.inventories, invocation),
    };
    let holders = play.holders(&compiled.inventory)?;
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
    let phase = if args.abandon { "abandon" } else { phase.name() };
    let vars = serde_json::json!({ "rotate_ca": phase, "rotate_ca_allow_outage": args.allow_outage });
    let play = Play {
        playbook: if args.expired { "replace-ca" } else { "rotate-ca" },
        clusters: vec![args.name.clone()],
        vars: Some(vars),
        run: &args.run,
        connection: &args.connection,
    };
    let compiled = play.compile(common.inventory, invocation)?;
    play.holders(&compiled.inventory)?;
    Ok(play.run(compiled, invocation)?.exit(false))
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
        "it was refused before anything had changed; if all clients are ready for it by now, begin it: etcdrun certs rotate-ca {}{flag}",
        args.name
    );
    Err(StateError::NotResumable(resumed.run.id.to_string(), why).into())
}

/// A playbook that ships with the program, on some clusters.
struct Play<'a> {
    playbook: &'a str,
    clusters: Vec<String>,
    vars: Option<serde_json::Value>,
    run: &'a RunArgs,
    connection: &'a ConnectionArgs,
}

impl Play<'_> {
    fn compile(&self, inventory: InventoryArgs, invocation: &Invocation) -> Result<Compiled, CliError> {
        let limit = (!self.clusters.is_empty()).then(|| self.clusters.join(","));
        let inventory = InventoryArgs { limit, ..inventory };
        let vars = VarsArgs { extra_vars: self.vars.iter().map(ToString::to_string).collect() };
        let selection = SelectionArgs { vars, ..SelectionArgs::default() };
        let name = playbook::embedded_name(self.playbook);
        compile_all(&[name], &inventory, &selection, &run::load_options(invocation), Opening::All, invocation)
    }

    /// Who has certificates in the clusters that are meant. A name that is no cluster's is an error, also if it is a host's.
    fn holders(&self, inventory: &Inventory) -> Result<Vec<Holders>, CliError> {
        let all = || inventory.clusters().map(|cluster| cluster.name.to_string()).collect();
        let names: Vec<String> = if self.clusters.is_empty() { all() } else { self.clusters.clone() };
        names.iter().map(|name| Ok(Holders::of(inventory, &find_cluster(inventory, name)?))).collect()
    }

    fn run(&self, compiled: Compiled, invocation: &Invocation) -> Result<run::Ended, CliError> {
        let style = if self.run.check { Style::Plan } else { Style::Playbook };
        run::execute(compiled, self.connection, self.run, style, invocation)
    }
}
