//! `etcd_checkpoint`: lets the members of a cluster put their logs into snapshots.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType, Client};
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, Member, WHOLE_CLUSTER, etcd_failed, fence, leader},
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
/// and members have changed: so it also belongs behind an upgrade to 3.6, and before the first change of members of a new cluster,
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
    /// Only where etcd could count wrong voters otherwise.
    #[serde(default)]
    only: Option<Only>,
    /// The timeout.
    #[serde(default = "patience")]
    timeout: Seconds,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum Only {
    /// If the log of a member has more than etcd reads in one piece.
    LongLogs,
    /// If such a log also goes back to the beginning of the cluster, and the members run 3.6 or later. A snapshot that does not come
    /// in time is no failure.
    YoungLogs,
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
    /// About how much is in its files.
    bytes: u64,
}

struct Push {
    module: EtcdCheckpoint,
    cluster: Cluster,
}

/// etcd reads a megabyte at once; zeros are not counted.
const ONE_PIECE: u64 = 256 << 10;
/// What comes before is the beginning of a cluster. etcd 3.6 creates its first snapshot here, unless its settings say otherwise.
const YOUNG: u64 = 10_000;
const LOOK: Duration = Duration::from_secs(10);
/// Entries that are on their way at the same time: not many, since the writes of clients wait behind them.
const AT_ONCE: usize = 32;
/// Entries between two looks at the disks.
const ROUND: usize = 32 * AT_ONCE;
const PAUSE: Duration = Duration::from_millis(20);

impl EngineAction for Push {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let would = || Outcome { msg: "would put logs into snapshots".into(), ..Outcome::changed() };
            if context.check_mode() && self.module.only != Some(Only::YoungLogs) {
                return Ok(would());
            }
            let clients = self.cluster.clients(context).await?;
            let seen = observe(&clients, LOOK).await;
            let members = self.concerned(context, &seen).await?;
            if members.is_empty() {
                return Ok(Outcome { msg: "etcd counts the right voters with these logs".into(), ..Outcome::ok() });
            }
            if context.check_mode() {
                return Ok(would());
            }
            let leader = leader(&clients, &seen)?;
            let index = seen.mark().unwrap_or(u64::MAX);
            fence(context).await?;
            let start = Instant::now();
            let mut entries = 0;
            loop {
                let late = self.behind(context, &members, index).await?;
                let Some(late) = late else {
                    let outcome = if entries > 0 { Outcome::changed() } else { Outcome::ok() };
                    let msg = format!("all logs up to {index} are in snapshots");
                    return Ok(Outcome { msg, ..outcome }.with("index", index).with("entries", entries));
                };
                if start.elapsed() >= self.module.timeout.0 {
                    let msg = format!(
                        "{late} has not put its log into a snapshot after {entries} more entries; is `snapshot-count` very high? set it to 10000, or let the cluster take more writes"
                    );
                    return Ok(match self.module.only {
                        Some(Only::YoungLogs) => Outcome { msg, ..Outcome::changed() },
                        _ => Outcome { refused: true, ..Outcome::failed(msg) },
                    });
                }
                entries += add(leader).await?;
                context.wait(PAUSE).await?;
            }
        })
    }
}

/// Adds entries to the log that change nothing.
async fn add(leader: &MemberClient) -> Result<usize, ActionError> {
    let client = leader.client().await.map_err(etcd_failed)?;
    for _ in 0..ROUND / AT_ONCE {
        for answer in join_all((0..AT_ONCE).map(|_| add_one(leader, client.clone()))).await {
            answer.map_err(etcd_failed)?;
        }
    }
    Ok(ROUND)
}

/// A question about alarms goes through the log, and changes nothing.
pub(super) async fn add_one(leader: &MemberClient, mut client: Client) -> Result<(), EtcdError> {
    leader.bounded(client.alarm(AlarmAction::Get, AlarmType::None, None)).await.map(drop)
}

impl Push {
    /// The members that have to create a snapshot: all, or none, if no log that etcd reads twice could leave it with wrong voters.
    async fn concerned(&self, context: &ActionContext, seen: &Observation) -> Result<Vec<&Member>, ActionError> {
        let is_meant = |member: &&Member| self.module.name.as_ref().is_none_or(|name| *name == member.name);
        let meant = self.cluster.members.iter().filter(is_meant);
        let Some(only) = self.module.only else { return Ok(meant.collect()) };
        let is_of_3_6 = seen.views().any(|(_, view)| view.version.series() >= (3, 6));
        if is_off(repair::RIGHT_VOTERS) || (only == Only::YoungLogs && !is_of_3_6) {
            return Ok(Vec::new());
        }
        let (mut members, mut is_needed) = (Vec::new(), false);
        for member in meant {
            match self.log_of(context, &member.name, true).await {
                Ok(log) => {
                    is_needed |= log.bytes > ONE_PIECE && (only == Only::LongLogs || log.snapshot < YOUNG);
                    members.push(member);
                }
                // A failed member is replaced although the host of another one is out of reach.
                Err(ActionError::Remote(error)) if only == Only::YoungLogs => {
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
            if self.log_of(context, &member.name, false).await?.snapshot < index {
                return Ok(Some(member.name.clone()));
            }
        }
        Ok(None)
    }

    async fn log_of(&self, context: &ActionContext, member: &str, count: bool) -> Result<Log, ActionError> {
        let session = context.reach.session(member, &context.session);
        let session = session.ok_or_else(|| ActionError::Failed(format!("{member} is not known")))?;
        let payload = Payload::new(include_str!("checkpoint.sh"))
            .value("data_dir", &self.module.data_dir)
            .value("count", if count { "yes" } else { "" });
        let outcome = session.run_one(payload, false).await.map_err(ActionError::Remote)?;
        let number = |name: &str, radix: u32| {
            let text = outcome.data.get(name).and_then(Value::as_str).unwrap_or_default();
            u64::from_str_radix(text.trim(), radix).unwrap_or_default()
        };
        Ok(Log { snapshot: number("index", 16), bytes: number("bytes", 10) })
    }
}
