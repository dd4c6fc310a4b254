//! `etcd_move_leader`: a member that leads hands over.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER, etcd_failed, fence, led},
};
use crate::model::{Disruption, Effects, Outcome, Seconds};
use etcdrun_etcd::etcd::{
    lead::{hand_over, successors},
    observe::observe,
};

/// Transfers leadership to another member, if this one is the leader.
///
/// The new leader is a healthy voter that has caught up; those with the newest version first. The leader is checked again right before.
/// If this member is not the leader, nothing happens.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdMoveLeader {
    /// The member that should not be the leader.
    name: String,
    /// Other members that should not become the leader.
    #[serde(default)]
    not_to: Vec<String>,
    #[serde(default)]
    cluster: ClusterArgs,
    /// The timeout.
    #[serde(default = "ten_seconds")]
    timeout: Seconds,
}

fn ten_seconds() -> Seconds {
    Seconds(Duration::from_secs(10))
}

impl Module for EtcdMoveLeader {
    const NAME: &'static str = "etcd_move_leader";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Transfer leadership
  etcd_move_leader:
    name: \"{{ inventory_hostname }}\"
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "leader", doc: "The leader." }];

    fn effects(&self) -> Effects {
        Effects::converging().disrupting(Disruption::Maybe).careful()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Move { cluster, module: self })))
    }
}

struct Move {
    module: EtcdMoveLeader,
    cluster: Cluster,
}

impl EngineAction for Move {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let (EtcdMoveLeader { name, not_to, timeout, .. }, cluster) = (&self.module, &self.cluster.name);
            let clients = self.cluster.clients(context).await?;
            let own = clients.iter().find(|client| *client.name == **name);
            let own = own.ok_or_else(|| ActionError::Failed(format!("{name} is not a member of `{cluster}`")))?;
            let now = led(&clients).await;
            let Some(others) = successors(&now, name) else {
                let leader = now.leader().map(|(leader, _)| leader.to_owned());
                let leader = leader
                    .ok_or_else(|| ActionError::Failed("there is no leader: wait for the election to end".into()))?;
                return Ok(Outcome { msg: format!("{leader} is the leader"), ..Outcome::ok() }.with("leader", leader));
            };
            let others: Vec<_> = others.into_iter().filter(|other| !not_to.contains(&other.name)).collect();
            let Some(first) = others.first() else {
                let why = format!("{name} is the leader, and no other member is healthy enough to become it");
                return match context.check_mode() {
                    true => Ok(Outcome { unknown: true, msg: why, ..Outcome::ok() }),
                    false => Err(ActionError::Failed(why)),
                };
            };
            if context.check_mode() {
                let msg = format!("would transfer leadership to {}", first.name);
                return Ok(Outcome { msg, ..Outcome::changed() }.with("leader", first.name.clone()));
            }
            let others: Vec<_> = others
                .into_iter()
                .filter_map(|other| {
                    let client = clients.iter().find(|client| *client.name == *other.name)?.clone();
                    Some((other, client))
                })
                .collect();
            fence(context).await?;
            match hand_over(own, &others, timeout.0).await.map_err(etcd_failed)? {
                Some(successor) => {
                    let msg = format!("{} is the leader now", successor.name);
                    Ok(Outcome { msg, ..Outcome::changed() }.with("leader", successor.name))
                }
                None => {
                    let now = observe(&clients, timeout.0).await;
                    let leader = now.leader().map(|(leader, _)| leader.to_owned()).unwrap_or_default();
                    Ok(Outcome { msg: "it is no longer the leader".into(), ..Outcome::ok() }.with("leader", leader))
                }
            }
        })
    }
}
