//! `etcd_checkpoint`: lets the members of a cluster put their logs into snapshots.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType, Client};
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, Member, WHOLE_CLUSTER, fence},
};
use crate::{
    model::{Disruption, Effects, Outcome, Seconds, Value},
    remote::Payload,
};
use etcdrun_base::mutant::{is_off, repair};
use etcdrun_etcd::etcd::{
    EtcdError, MemberClient,
    observe::{Observation, observe},
};

/// Forces a Raft snapshot on every member, so that its current log is in a snapshot on disk.
///
/// When etcd starts, it reads its log from the last snapshot on. etcd 3.7 cannot read entries of 3.5, and panics,
/// so this belongs between 3.6 and 3.7. And etcd 3.6 and 3.7 may count wrong voters after they have read an older cluster version twice
/// and members have changed: so it also belongs behind an upgrade to 3.6, and to a change of members of a new cluster,
/// which begins with version 3.0 if a member is late. Members create a snapshot after `snapshot-count` entries: entries that change
/// nothing are added until all have created one. No data changes, and no revision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdCheckpoint {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The data directory on the members.
    #[serde(default = "super::data_dir")]
    data_dir: String,
    /// Only this member has to create one.
    #[serde(default)]
    name: Option<String>,
    /// Only where etcd could count wrong voters otherwise: from 3.6 on, if the log of a member has an older cluster version, and more than
    /// etcd reads in one piece.
    #[serde(default)]
    if_needed: bool,
    /// A snapshot that does not come in time is no failure.
    #[serde(default)]
    optional: bool,
    /// The timeout.
    #[serde(default = "patience")]
    timeout: Seconds,
}

fn patience() -> Seconds {
    Seconds(Duration::from_secs(600))
}

impl Module for EtcdCheckpoint {
    const NAME: &'static str = "etcd_checkpoint";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Force a Raft snapshot on every member
  etcd_checkpoint:
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "index", doc: "The entry up to which all logs are in snapshots." },
        ResultField { name: "entries", doc: "How many entries were added." },
        ResultField { name: "done", doc: "Whether every member has its log in a snapshot, or needs none." },
    ];

    fn effects(&self) -> Effects {
        Effects::converging().disrupting(Disruption::No)
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Push { cluster, module: self })))
    }
}

/// What a member has on its disk.
struct Log {
    /// The index of its newest snapshot.
    snapshot: u64,
    /// About how much is in the log behind that, if it has one of the versions that were asked for.
    bytes: u64,
}

struct Push {
    module: EtcdCheckpoint,
    cluster: Cluster,
}

/// etcd reads a megabyte at once; zeros are not counted.
const ONE_PIECE: u64 = 256 << 10;
const LOOK: Duration = Duration::from_secs(3);
/// Entries that are on their way at the same time: not many, since the writes of clients wait behind them.
const AT_ONCE: usize = 32;
/// Entries between two looks at the disks.
const ROUND: usize = 32 * AT_ONCE;
/// A member that is so many entries behind has nothing from more of them.
const LAG: u64 = 4 * ROUND as u64;
const PAUSE: Duration = Duration::from_millis(20);
/// Until the next attempt, where none succeeds now.
const LONG_PAUSE: Duration = Duration::from_millis(500);
/// A member that has not answered for so long is not waited for.
const SILENCE: Duration = Duration::from_secs(60);

impl EngineAction for Push {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let would = || Outcome { msg: "would put logs into snapshots".into(), ..Outcome::changed() };
            if context.check_mode() && !(self.module.if_needed && self.module.optional) {
                return Ok(would().with("done", true));
            }
            let clients = self.cluster.clients(context).await?;
            let seen = observe(&clients, LOOK).await;
            let members = self.concerned(context, &seen).await?;
            if members.is_empty() {
                let msg = "etcd counts the right voters with these logs".into();
                return Ok(Outcome { msg, ..Outcome::ok() }.with("done", true));
            }
            if context.check_mode() {
                return Ok(would().with("done", true));
            }
            fence(context).await?;
            self.push(context, &clients, seen, &members).await
        })
    }
}

/// How far the last look at the cluster goes.
fn newest(seen: &Observation) -> Option<u64> {
    seen.views().map(|(_, view)| view.raft_index).max()
}

/// Adds entries to the log that change nothing, through the leader if it is known. The next round may go through another member.
async fn add(clients: &[MemberClient], seen: &Observation) -> Result<(), String> {
    let leader = seen.leader().map(|(name, _)| name);
    let through = leader.or_else(|| seen.views().find(|(_, view)| !view.is_learner).map(|(name, _)| name));
    let member = clients.iter().find(|client| Some(&*client.name) == through).ok_or("no member answers")?;
    let client = member.client().await.map_err(|error| error.to_string())?;
    for _ in 0..ROUND / AT_ONCE {
        for answer in join_all((0..AT_ONCE).map(|_| add_one(member, client.clone()))).await {
            answer.map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

/// A question about alarms goes through the log, and changes nothing.
pub(super) async fn add_one(leader: &MemberClient, mut client: Client) -> Result<(), EtcdError> {
    leader.bounded(client.alarm(AlarmAction::Get, AlarmType::None, None)).await.map(drop)
}

impl Push {
    /// Adds entries until these members have snapshots of all that was in the log.
    async fn push(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        mut seen: Observation,
        members: &[&Member],
    ) -> Result<Outcome, ActionError> {
        let index = newest(&seen).ok_or_else(|| ActionError::Failed("no member answers".into()))?;
        let (start, mut answered, mut entries) = (Instant::now(), Instant::now(), 0);
        loop {
            let behind = match self.behind(context, members, index).await {
                Err(ActionError::Remote(error)) if self.module.optional => {
                    return Ok(self.gives_up("a member", entries, &error.to_string()));
                }
                behind => behind?,
            };
            let Some(late) = behind else {
                let outcome = if entries > 0 { Outcome::changed() } else { Outcome::ok() };
                let msg = format!("all logs up to {index} are in snapshots");
                return Ok(Outcome { msg, ..outcome }.with("index", index).with("entries", entries).with("done", true));
            };
            let view = seen.views().find(|(name, _)| *name == late).map(|(_, view)| view);
            let trouble = match view {
                None => "it does not answer".to_owned(),
                Some(view) if view.applied_index + LAG < newest(&seen).unwrap_or_default() => {
                    "it lags behind".to_owned()
                }
                Some(_) => match add(clients, &seen).await {
                    Ok(()) => {
                        entries += ROUND;
                        String::new()
                    }
                    Err(why) => why,
                },
            };
            if view.is_some() {
                answered = Instant::now();
            }
            if start.elapsed() >= self.module.timeout.0 || answered.elapsed() >= SILENCE {
                return Ok(self.gives_up(&late, entries, &trouble));
            }
            context.wait(if trouble.is_empty() { PAUSE } else { LONG_PAUSE }).await?;
            seen = observe(clients, LOOK).await;
        }
    }

    fn gives_up(&self, late: &str, entries: usize, trouble: &str) -> Outcome {
        let why = if trouble.is_empty() { String::new() } else { format!(" ({trouble})") };
        let msg = format!(
            "{late} has not put its log into a snapshot after {entries} more entries{why}; fix {late}, or let the cluster take more writes, then run `etcdrun resume`"
        );
        let outcome = match self.module.optional {
            true => Outcome { msg, ..if entries > 0 { Outcome::changed() } else { Outcome::ok() } },
            false => Outcome { refused: true, ..Outcome::failed(msg) },
        };
        outcome.with("entries", entries).with("done", false)
    }

    /// The members that have to create a snapshot: all, or none, if no log that etcd reads twice could leave it with wrong voters.
    async fn concerned(&self, context: &ActionContext, seen: &Observation) -> Result<Vec<&Member>, ActionError> {
        let is_meant = |member: &&Member| self.module.name.as_ref().is_none_or(|name| *name == member.name);
        let meant = self.cluster.members.iter().filter(is_meant);
        if !self.module.if_needed {
            return Ok(meant.collect());
        }
        let series = seen.views().map(|(_, view)| view.version.series()).max().unwrap_or_default();
        if is_off(repair::RIGHT_VOTERS) || series < (3, 6) {
            return Ok(Vec::new());
        }
        let older: Vec<String> = (0..series.1).map(|minor| format!("3.{minor}.0")).collect();
        let (mut members, mut is_needed) = (Vec::new(), false);
        for member in meant {
            match self.log_of(context, &member.name, &older).await {
                Ok(log) => {
                    is_needed |= log.bytes > ONE_PIECE;
                    members.push(member);
                }
                // A failed member is replaced although the host of another one is out of reach.
                Err(ActionError::Remote(error)) if self.module.optional => {
                    tracing::debug!(%error, member = %member.name, "its log was not read");
                }
                Err(error) => return Err(error),
            }
        }
        Ok(if is_needed { members } else { Vec::new() })
    }

    /// A member whose newest snapshot does not reach the entry, if there is one.
    async fn behind(
        &self,
        context: &ActionContext,
        members: &[&Member],
        index: u64,
    ) -> Result<Option<String>, ActionError> {
        for member in members {
            if self.log_of(context, &member.name, &[]).await?.snapshot < index {
                return Ok(Some(member.name.clone()));
            }
        }
        Ok(None)
    }

    /// `versions` are those that its log is searched for.
    async fn log_of(&self, context: &ActionContext, member: &str, versions: &[String]) -> Result<Log, ActionError> {
        let session = context.reach.session(member, &context.session);
        let session = session.ok_or_else(|| ActionError::Failed(format!("{member} is not known")))?;
        let payload = Payload::new(include_str!("checkpoint.sh")).value("data_dir", &self.module.data_dir);
        let payload = versions.iter().fold(payload, |payload, version| payload.arg(version));
        let outcome = session.run_one(payload, false).await.map_err(ActionError::Remote)?;
        if outcome.failed {
            return Err(ActionError::Failed(format!("cannot read the log of {member}: {}", outcome.msg)));
        }
        let number = |name: &str, radix: u32| {
            let text = outcome.data.get(name).and_then(Value::as_str).unwrap_or_default();
            u64::from_str_radix(text.trim(), radix).unwrap_or_default()
        };
        Ok(Log { snapshot: number("index", 16), bytes: number("bytes", 10) })
    }
}
