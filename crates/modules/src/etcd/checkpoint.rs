//! `etcd_checkpoint`: lets the members of a cluster put their logs into snapshots.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmType};
use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER, etcd_failed, fence, leader},
};
use crate::{
    model::{Disruption, Effects, Outcome, Seconds, Value},
    remote::Payload,
};
use etcdrun_etcd::etcd::{MemberClient, observe::observe};

/// Forces a Raft snapshot on every member, so that its current log is in a snapshot on disk.
///
/// When etcd starts, it reads its log from the last snapshot on. etcd 3.7 cannot read entries of 3.5, and panics,
/// so this belongs between 3.6 and 3.7. Members create a snapshot after `snapshot-count` entries: entries
/// that change nothing are added until all have created one. No data changes, and no revision.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdCheckpoint {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The data directory on the members.
    #[serde(default = "super::data_dir")]
    data_dir: String,
    /// The timeout.
    #[serde(default = "patience")]
    timeout: Seconds,
}

fn patience() -> Seconds {
    Seconds(Duration::from_secs(300))
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

struct Push {
    module: EtcdCheckpoint,
    cluster: Cluster,
}

const LOOK: Duration = Duration::from_secs(10);
/// Entries that are on their way at the same time: few, since the writes of clients wait behind them.
const AT_ONCE: usize = 8;
/// Entries between two looks at the disks.
const ROUND: usize = 1000;
const PAUSE: Duration = Duration::from_millis(20);

impl EngineAction for Push {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            if context.check_mode() {
                return Ok(Outcome { msg: "would put logs into snapshots".into(), ..Outcome::changed() });
            }
            let clients = self.cluster.clients(context).await?;
            let seen = observe(&clients, LOOK).await;
            let leader = leader(&clients, &seen)?;
            let index = seen.mark().unwrap_or(u64::MAX);
            fence(context).await?;
            let start = Instant::now();
            let mut entries = 0;
            loop {
                let late = self.behind(context, index).await?;
                let Some(late) = late else {
                    let outcome = if entries > 0 { Outcome::changed() } else { Outcome::ok() };
                    let msg = format!("all logs up to {index} are in snapshots");
                    return Ok(Outcome { msg, ..outcome }.with("index", index).with("entries", entries));
                };
                if start.elapsed() >= self.module.timeout.0 {
                    let msg = format!(
                        "{late} has not put its log into a snapshot after {entries} more entries; is `snapshot-count` very high? set it to 10000, or let the cluster take more writes"
                    );
                    return Ok(Outcome { refused: true, ..Outcome::failed(msg) });
                }
                entries += add(leader).await?;
                context.wait(PAUSE).await?;
            }
        })
    }
}

/// Adds entries to the log that change nothing: questions about alarms, which go through it.
async fn add(leader: &MemberClient) -> Result<usize, ActionError> {
    let client = leader.client().await.map_err(etcd_failed)?;
    for _ in 0..ROUND / AT_ONCE {
        let ask = |_| {
            let mut client = client.clone();
            async move { leader.bounded(client.alarm(AlarmAction::Get, AlarmType::None, None)).await }
        };
        for answer in join_all((0..AT_ONCE).map(ask)).await {
            answer.map_err(etcd_failed)?;
        }
    }
    Ok(ROUND)
}

impl Push {
    /// A member whose newest snapshot does not reach the entry, if there is one.
    async fn behind(&self, context: &ActionContext, index: u64) -> Result<Option<String>, ActionError> {
        for member in &self.cluster.members {
            let session = context.reach.session(&member.name, &context.session);
            let session = session.ok_or_else(|| ActionError::Failed(format!("{} is not known", member.name)))?;
            let payload = Payload::new(include_str!("checkpoint.sh")).value("data_dir", &self.module.data_dir);
            let outcome = session.run_one(payload, false).await.map_err(ActionError::Remote)?;
            let found = outcome.data.get("index").and_then(Value::as_str).unwrap_or_default();
            if u64::from_str_radix(found, 16).unwrap_or_default() < index {
                return Ok(Some(member.name.clone()));
            }
        }
        Ok(None)
    }
}
