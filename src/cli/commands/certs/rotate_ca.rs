//! `etcdrun certs rotate-ca CLUSTER`: plays a phase of the rotation, once the operator says that the clients are ready.

use clap::Args;
use serde_json::json;

use super::Common;
use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, RunArgs, VarsArgs, YesArgs},
    issued::holders,
    record::Resumed,
    verb::confirm,
};
use crate::{
    model::RunResult,
    pki::{RotationPhase, Store},
    state::{Record, StateError},
};

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

    #[command(flatten)]
    prompt: YesArgs,

    #[command(flatten)]
    vars: VarsArgs,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &RotateArgs, common: &Common, invocation: &Invocation) -> Result<Exit, CliError> {
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
    let play = common.play(playbook, Some(&args.name), (&args.vars, Some(&vars)), (&args.run, &args.connection));
    let compiled = play.compile(invocation)?;
    holders(&compiled.inventory, &clusters)?;
    confirm(&args.question(phase), args.prompt.yes, args.run.mode.check, invocation)?;
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
