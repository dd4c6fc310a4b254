//! `etcd_order`: which member of a cluster is best changed next.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, BuildContext, EngineAction, Module, ModuleError, ResultField, Running, Traits,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
};
use crate::{
    model::RolloutPart,
    model::{Effects, Outcome},
};
use etcdrun_etcd::etcd::{
    TurnRecord,
    observe::{Observation, observe},
};

/// Returns the order in which to change members, in their current state: unhealthy members, then followers, then the leader.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdOrder {
    #[serde(default)]
    cluster: ClusterArgs,
}

impl Module for EtcdOrder {
    const NAME: &'static str = "etcd_order";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const TRAITS: Traits = Traits { rollout: Some(RolloutPart::Order), ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Choose the next member
  etcd_order:
  once_per: cluster
  register: order
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "order", doc: "The members' names, in the order of their turns." },
        ResultField { name: "leader", doc: "The leader, or null." },
        ResultField { name: "cluster", doc: "The cluster's name." },
        ResultField {
            name: "turn_seconds",
            doc: "How long the longest turn of the last rollout took, if there was one.",
        },
    ];

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Engine(Box::new(Look { cluster: self.cluster.known()? })))
    }
}

struct Look {
    cluster: Cluster,
}

const LIMIT: Duration = Duration::from_secs(10);

impl EngineAction for Look {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let cluster = &self.cluster.name;
            let clients = self.cluster.clients(context).await?;
            let seen = observe(&clients, LIMIT).await;
            let leader = seen.leader().map(|(name, _)| name.to_owned());
            let msg = leader
                .as_ref()
                .map_or_else(|| "there is no leader".to_owned(), |leader| format!("{leader} is the leader"));
            Ok(Outcome { msg, ..Outcome::ok() }
                .with("order", order(&seen))
                .with("leader", leader)
                .with("cluster", cluster.as_str())
                .with("turn_seconds", TurnRecord::load(&context.state, cluster).map(|record| record.longest)))
        })
    }
}

/// A member that is not well is lost already: changing it costs nothing. Who leads is changed when nobody else is left.
fn order(seen: &Observation) -> Vec<String> {
    let leader = seen.leader().map(|(name, _)| name);
    let rank = |name: &str, is_well: bool| match is_well {
        false => 0,
        true if leader != Some(name) => 1,
        true => 2,
    };
    let mut names: Vec<(u8, &str)> =
        seen.members.iter().map(|seen| (rank(&seen.name, seen.is_well()), seen.name.as_str())).collect();
    names.sort_by_key(|(rank, _)| *rank);
    names.into_iter().map(|(_, name)| name.to_owned()).collect()
}
