//! `etcd_cluster`: waits until a cluster is well, and says how it is.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
    service::trouble,
};
use crate::model::{Effects, Outcome, Seconds, Value};
use etcdrun_etcd::etcd::{ClusterRecord, ClusterStatus, Phase, look};

/// Waits until every member of a cluster answers, and all of them report the same members and the same leader.
///
/// Each member is queried through its own host, so the operator needs no route to it. The cluster ID is then
/// stored in the state directory, so that the cluster is not bootstrapped a second time.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdCluster {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The timeout.
    #[serde(default = "two_minutes")]
    timeout: Seconds,
}

fn two_minutes() -> Seconds {
    Seconds(Duration::from_secs(120))
}

impl Module for EtcdCluster {
    const NAME: &'static str = "etcd_cluster";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Wait for the cluster
  etcd_cluster:
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "cluster_id", doc: "The id of the cluster, in hexadecimal." },
        ResultField { name: "leader", doc: "The leader." },
        ResultField { name: "members", doc: "The status of each member: id, version, term, indexes, size, errors." },
    ];

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Wait { cluster, module: self })))
    }
}

struct Wait {
    module: EtcdCluster,
    cluster: Cluster,
}

const PAUSE: Duration = Duration::from_millis(100);
/// How often services are looked at whose servers do not answer.
const CHECK_PAUSE: Duration = Duration::from_secs(3);

impl EngineAction for Wait {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            if context.check_mode() {
                return Ok(self.foreseen(context).await);
            }
            let clients = self.cluster.clients(context).await?;
            let names = self.names();
            let (start, mut next_check) = (Instant::now(), CHECK_PAUSE);
            let status = loop {
                let status = look(&clients).await;
                let Some(problem) = status.problem(&names) else { break status };
                if start.elapsed() >= next_check {
                    next_check = start.elapsed() + CHECK_PAUSE;
                    self.check_services(context, &status).await?;
                }
                if start.elapsed() >= self.module.timeout.0 {
                    return Err(ActionError::Failed(format!("waited {:?} in vain: {problem}", self.module.timeout.0)));
                }
                context.wait(PAUSE).await?;
            };
            self.remember(context, &status)?;
            Ok(told(&status))
        })
    }
}

impl Wait {
    fn names(&self) -> Vec<&str> {
        self.cluster.members.iter().map(|member| member.name.as_str()).collect()
    }

    /// A cluster that is well has nothing to wait for, so that the plan of one that needs nothing says so.
    async fn foreseen(&self, context: &ActionContext) -> Outcome {
        // Without a CA there is no cluster yet.
        if let Ok(clients) = self.cluster.clients(context).await {
            let status = look(&clients).await;
            if status.problem(&self.names()).is_none() {
                return told(&status);
            }
        }
        Outcome { unknown: true, msg: "would wait until every member answers".into(), ..Outcome::ok() }
    }

    /// A server that does not stay up is not worth waiting for.
    async fn check_services(&self, context: &ActionContext, status: &ClusterStatus) -> Result<(), ActionError> {
        for (member, answer) in self.cluster.members.iter().zip(&status.members) {
            if answer.is_err()
                && let Some(trouble) = trouble(context, &member.name).await
            {
                return Err(ActionError::Failed(trouble));
            }
        }
        Ok(())
    }

    fn remember(&self, context: &ActionContext, status: &ClusterStatus) -> Result<(), ActionError> {
        let failed = |error: crate::state::StateError| ActionError::Failed(error.to_string());
        let cluster = &self.cluster.name;
        let before = ClusterRecord::load(&context.state, cluster).map_err(failed)?;
        let id = status.cluster_id().map(str::to_owned);
        if let Some(known) = before.as_ref().and_then(|record| record.cluster_id.as_ref())
            && Some(known) != id.as_ref()
        {
            let id = id.unwrap_or_default();
            return Err(ActionError::Failed(format!(
                "the cluster `{cluster}` had the id {known}, and now it has {id}: this is another cluster"
            )));
        }
        let record = ClusterRecord {
            phase: Phase::Formed,
            token: before.as_ref().map(|record| record.token.clone()).unwrap_or_default(),
            members: self.cluster.names(),
            cluster_id: id,
        };
        match before.as_ref() == Some(&record) {
            true => Ok(()),
            false => record.keep(&context.state, cluster).map_err(failed),
        }
    }
}

fn told(status: &ClusterStatus) -> Outcome {
    let members: Vec<Value> =
        status.members.iter().flatten().map(|member| serde_json::to_value(member).unwrap_or_default()).collect();
    let (id, leader) = (status.cluster_id().unwrap_or_default(), status.leader().unwrap_or_default());
    Outcome { msg: format!("{} members, {leader} is the leader", members.len()), ..Outcome::ok() }
        .with("cluster_id", id)
        .with("leader", leader)
        .with("members", members)
}
