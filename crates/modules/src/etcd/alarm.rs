//! `etcd_alarm`: alarms of a cluster, and the way out of them.

use std::time::Duration;

use etcd_client::{AlarmAction, AlarmOptions, AlarmType, CompactionOptions};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER, etcd_failed, fence, leader, led},
};
use crate::model::{ByteSize, Effects, Outcome, Seconds, Value};
use etcdrun_etcd::etcd::{
    MemberClient,
    observe::{Alarm, AlarmKind, Observation},
};

/// Lists the alarms of a cluster, compacts its history, or disarms an alarm.
///
/// To fix NOSPACE, use `compacted`, then `etcd_defrag` on each member, then `disarmed`: the playbook `nospace.yaml` does it. An
/// alarm whose cause still exists is not disarmed; CORRUPT only if it is named. After NOSPACE is disarmed, a key is written to check
/// that writes work. Listing is read-only and writes nothing to etcd's Raft log.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdAlarm {
    /// What to do.
    #[serde(default)]
    state: AlarmState,
    #[serde(default)]
    cluster: ClusterArgs,
    /// Which alarm.
    #[serde(default)]
    alarm: AlarmName,
    /// The quota of the database; from 3.6 on etcd reports it.
    #[serde(default)]
    quota: Option<ByteSize>,
    /// How many of the newest revisions a compaction keeps.
    #[serde(default)]
    keep_revisions: u32,
    /// The timeout of the compaction.
    #[serde(default = "ten_minutes")]
    timeout: Seconds,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AlarmState {
    /// Only list the alarms.
    #[default]
    Listed,
    /// With NOSPACE: compact the history of keys, so that a defragmentation can free space.
    Compacted,
    /// The alarm is disarmed.
    Disarmed,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum AlarmName {
    #[default]
    Nospace,
    Corrupt,
}

/// The key by which it is seen that writes work: the canary's own.
const WRITTEN: &str = "/etcdrun/canary";

fn ten_minutes() -> Seconds {
    Seconds(Duration::from_secs(600))
}

impl Module for EtcdAlarm {
    const NAME: &'static str = "etcd_alarm";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Compact the history of keys
  etcd_alarm:
    state: compacted
  once_per: cluster
";
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "alarms", doc: "The alarms that were found: `member` and `kind`." }];

    fn effects(&self) -> Effects {
        match self.state {
            AlarmState::Listed => Effects::read_only(),
            AlarmState::Compacted | AlarmState::Disarmed => Effects::converging(),
        }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Alarms { cluster, module: self })))
    }
}

struct Alarms {
    module: EtcdAlarm,
    cluster: Cluster,
}

impl EngineAction for Alarms {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let state = self.module.state;
            let clients = self.cluster.clients(context).await?;
            let now = led(&clients).await;
            if now.views().next().is_none() {
                return Err(ActionError::Failed(format!("no member of `{}` answers", self.cluster.name)));
            }
            let mut alarms: Vec<Alarm> = now.views().flat_map(|(_, view)| view.alarms.clone()).collect();
            alarms.sort();
            alarms.dedup();
            let ours: Vec<Alarm> = alarms.iter().filter(|alarm| alarm.kind == self.kind()).cloned().collect();
            let listed: Vec<Value> =
                alarms.iter().map(|alarm| serde_json::to_value(alarm).unwrap_or_default()).collect();
            let outcome = Outcome { msg: self.told(&alarms, &now), ..Outcome::ok() }.with("alarms", listed);
            if state == AlarmState::Listed || ours.is_empty() {
                return Ok(outcome);
            }
            if state == AlarmState::Disarmed {
                self.refuse_cause(&now)?;
            }
            if context.check_mode() {
                return Ok(Outcome { changed: true, ..outcome });
            }
            fence(context).await?;
            match state {
                AlarmState::Compacted => self.compact(&clients, &now).await?,
                _ => self.disarm(leader(&clients, &now)?, &ours).await?,
            }
            Ok(Outcome { changed: true, ..outcome })
        })
    }
}

impl Alarms {
    fn kind(&self) -> AlarmKind {
        match self.module.alarm {
            AlarmName::Nospace => AlarmKind::Nospace,
            AlarmName::Corrupt => AlarmKind::Corrupt,
        }
    }

    fn told(&self, alarms: &[Alarm], now: &Observation) -> String {
        let one = |alarm: &Alarm| {
            let kind = match &alarm.kind {
                AlarmKind::Nospace => "NOSPACE",
                AlarmKind::Corrupt => "CORRUPT",
                AlarmKind::Other(kind) => kind,
            };
            format!("{kind} on {}", now.name(alarm.member))
        };
        let told: Vec<String> = alarms.iter().map(one).collect();
        if told.is_empty() { "no alarm".to_owned() } else { told.join(", ") }
    }

    /// It would be raised again with the next write.
    fn refuse_cause(&self, now: &Observation) -> Result<(), ActionError> {
        if self.kind() != AlarmKind::Nospace {
            return Ok(());
        }
        let (quota, cluster) = (self.module.quota.map(|quota| quota.0), &self.cluster.name);
        // The alarm comes with a write that would not fit any more, so a little below.
        let is_full = |size: u64, quota: u64| size >= quota / 10 * 9;
        let full = now.views().find(|(_, view)| view.quota.or(quota).is_some_and(|quota| is_full(view.db_size, quota)));
        match full {
            None => Ok(()),
            Some((name, view)) => Err(ActionError::Failed(format!(
                "cannot disarm NOSPACE: the database of {name} still has {} bytes, nearly its quota; compact and defragment each member first (`etcdrun playbook nospace.yaml -l {cluster}`); where that was not enough, delete keys (`etcdrun etcdctl {cluster} -- del KEY`) or raise `etcd.quota` of `{cluster}` in the inventory, and run it again",
                view.db_size
            ))),
        }
    }

    /// Only the member that is asked waits until it has let go of what was compacted, so each is asked, to one revision more
    /// than the one before: the same one again would be refused.
    async fn compact(&self, clients: &[MemberClient], now: &Observation) -> Result<(), ActionError> {
        let newest = now.views().map(|(_, view)| view.revision).max().unwrap_or_default();
        let asked: Vec<&MemberClient> = clients.iter().filter(|client| now.view(&client.name).is_some()).collect();
        for (left, client) in (0..asked.len()).rev().zip(asked) {
            let revision = newest - i64::from(self.module.keep_revisions) - i64::try_from(left).unwrap_or_default();
            let patient = client.patient(self.module.timeout.0);
            let mut client = patient.client().await.map_err(etcd_failed)?;
            let options = CompactionOptions::new().with_physical();
            match patient.bounded(client.compact(revision.max(1), Some(options))).await {
                Ok(_) => {}
                Err(error) if error.to_string().contains("has been compacted") => {}
                Err(error) => return Err(etcd_failed(error)),
            }
        }
        Ok(())
    }

    async fn disarm(&self, leader: &MemberClient, alarms: &[Alarm]) -> Result<(), ActionError> {
        let kind = match self.module.alarm {
            AlarmName::Nospace => AlarmType::Nospace,
            AlarmName::Corrupt => AlarmType::Corrupt,
        };
        let mut client = leader.client().await.map_err(etcd_failed)?;
        for alarm in alarms {
            let mut options = AlarmOptions::new();
            options.with_member(alarm.member);
            let disarmed = leader.bounded(client.alarm(AlarmAction::Deactivate, kind, Some(options))).await;
            disarmed.map_err(etcd_failed)?;
        }
        if self.kind() != AlarmKind::Nospace {
            return Ok(());
        }
        let cluster = &self.cluster.name;
        leader.bounded(client.put(WRITTEN, "writes work", None)).await.map(drop).map_err(|error| {
            ActionError::Failed(format!(
                "NOSPACE was disarmed, but a write still fails ({error}); raise `etcd.quota` of `{cluster}` in the inventory, and run `etcdrun playbook nospace.yaml -l {cluster}` again"
            ))
        })
    }
}
