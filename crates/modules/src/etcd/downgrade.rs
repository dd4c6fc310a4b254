//! `etcd_downgrade`: etcd's leave to go back a minor version.

use std::time::Duration;

use etcd_client::DowngradeOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER, etcd_failed, fence, leader, led},
};
use crate::model::{Effects, Outcome, Seconds, Version};
use etcdrun_etcd::etcd::{
    EtcdError, MemberClient,
    observe::{Observation, Series, observe},
};

/// Validates, enables or cancels a downgrade to the previous minor version in etcd. From 3.6 on.
///
/// After it is enabled, this waits until every member reports that version for the cluster and for its data: only then may the
/// first member be downgraded. The members themselves are not changed. As long as a member still runs the old version, its cluster
/// has that version, and the others can be downgraded without this.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdDowngrade {
    /// What to do.
    state: DowngradeState,
    /// The version to downgrade to; only its minor version matters.
    #[serde(default)]
    version: Option<Version>,
    #[serde(default)]
    cluster: ClusterArgs,
    /// The timeout.
    #[serde(default = "one_minute")]
    timeout: Seconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DowngradeState {
    /// The downgrade is possible.
    Validated,
    /// The downgrade is enabled, and the data is ready for it.
    Enabled,
    /// The downgrade is cancelled.
    Cancelled,
}

fn one_minute() -> Seconds {
    Seconds(Duration::from_secs(60))
}

impl Module for EtcdDowngrade {
    const NAME: &'static str = "etcd_downgrade";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Enable the downgrade in etcd
  etcd_downgrade:
    state: enabled
    version: 3.5.34
  once_per: cluster
";
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "cluster_version", doc: "The cluster version that the leader reports." }];

    fn validate(&self) -> Result<(), ModuleError> {
        match (self.state, &self.version) {
            (DowngradeState::Validated | DowngradeState::Enabled, None) => {
                Err(ModuleError::new("`version` is missing").help("set the version to downgrade to"))
            }
            _ => Ok(()),
        }
    }

    fn effects(&self) -> Effects {
        match self.state {
            DowngradeState::Validated => Effects::read_only(),
            DowngradeState::Enabled | DowngradeState::Cancelled => Effects::converging(),
        }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Downgrade { cluster, module: self })))
    }
}

struct Downgrade {
    module: EtcdDowngrade,
    cluster: Cluster,
}

const LOOK: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(200);

impl EngineAction for Downgrade {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let EtcdDowngrade { state, version, .. } = &self.module;
            let clients = self.cluster.clients(context).await?;
            let now = led(&clients).await;
            let leader = leader(&clients, &now)?;
            let target = version.unwrap_or_default().series();
            match state {
                DowngradeState::Cancelled => self.cancel(context, &clients, leader, &now).await,
                _ if is_ready(&now, target) => Ok(told(Outcome { msg: ready(&now, target), ..Outcome::ok() }, &now)),
                DowngradeState::Validated => {
                    self.validated(context, leader, &now, target).await?;
                    Ok(told(Outcome { msg: format!("{} is possible", text(target)), ..Outcome::ok() }, &now))
                }
                DowngradeState::Enabled => self.enable(context, &clients, leader, &now, target).await,
            }
        })
    }
}

/// The cluster is of that version, and so is the data of every member; and it stays so, because etcd has agreed to go there, or
/// because a member runs it.
fn is_ready(now: &Observation, target: Series) -> bool {
    let runs_it = runs(now, target).is_some();
    let mut views = now.views().peekable();
    views.peek().is_some()
        && views.all(|(_, view)| {
            let data = view.storage_version.is_none_or(|version| version == target);
            (runs_it || view.downgrade == Some(target)) && data && view.cluster_version == Some(target)
        })
}

/// A member that runs the version.
fn runs(now: &Observation, target: Series) -> Option<&str> {
    now.views().find(|(_, view)| view.version.series() == target).map(|(name, _)| name)
}

/// Another downgrade has to come before.
fn is_far(now: &Observation, target: Series) -> bool {
    let cluster = now.leader().and_then(|(_, view)| view.cluster_version);
    cluster.is_some_and(|(major, minor)| (major, minor) > (target.0, target.1 + 1))
}

fn text(series: Series) -> String {
    format!("{}.{}", series.0, series.1)
}

fn ready(now: &Observation, target: Series) -> String {
    match runs(now, target) {
        Some(name) => format!("{name} runs {}, so members can go back to it", text(target)),
        None => format!("ready for {}", text(target)),
    }
}

fn told(outcome: Outcome, now: &Observation) -> Outcome {
    let version = now.leader().and_then(|(_, view)| view.cluster_version).map(text).unwrap_or_default();
    outcome.with("cluster_version", version)
}

fn is_under_way(error: &EtcdError) -> bool {
    matches!(error, EtcdError::Refused { reason, .. } if reason.contains("downgrade job in progress"))
}

impl Downgrade {
    /// etcd refuses while an earlier downgrade is not over: its leader notices within seconds that all members have arrived.
    async fn validated(
        &self,
        context: &ActionContext,
        leader: &MemberClient,
        now: &Observation,
        target: Series,
    ) -> Result<(), ActionError> {
        let old = now.views().find(|(_, view)| view.version.series() < (3, 6) && view.version.series() > target);
        if let Some((name, view)) = old {
            return Err(ActionError::Failed(format!(
                "{name} runs {}, and etcd supports a downgrade only from 3.6 on: restore a snapshot that was taken before the upgrade",
                view.version
            )));
        }
        let start = Instant::now();
        loop {
            match self.ask(leader, DowngradeOptions::Validate(text(target))).await {
                Err(error) if is_under_way(&error) && start.elapsed() < self.module.timeout.0 => {
                    context.wait(PAUSE).await?;
                }
                answer => return answer.map_err(etcd_failed),
            }
        }
    }

    async fn ask(&self, leader: &MemberClient, what: DowngradeOptions) -> Result<(), EtcdError> {
        let mut client = leader.client().await?.maintenance_client();
        leader.bounded(client.downgrade(what)).await.map(drop)
    }

    async fn enable(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        leader: &MemberClient,
        now: &Observation,
        target: Series,
    ) -> Result<Outcome, ActionError> {
        if context.check_mode() && is_far(now, target) {
            let msg = format!("to be seen once the cluster is of {}.{}", target.0, target.1 + 1);
            return Ok(told(Outcome { unknown: true, msg, ..Outcome::ok() }, now));
        }
        let is_enabled = runs(now, target).is_some() || now.views().any(|(_, view)| view.downgrade == Some(target));
        if !is_enabled {
            self.validated(context, leader, now, target).await?;
        }
        if context.check_mode() {
            return Ok(told(Outcome { msg: format!("would go down to {}", text(target)), ..Outcome::changed() }, now));
        }
        if !is_enabled {
            fence(context).await?;
            self.ask(leader, DowngradeOptions::Enable(text(target))).await.map_err(etcd_failed)?;
        }
        let start = Instant::now();
        loop {
            let now = observe(clients, LOOK).await;
            if is_ready(&now, target) {
                return Ok(told(Outcome { msg: ready(&now, target), ..Outcome::changed() }, &now));
            }
            if start.elapsed() >= self.module.timeout.0 {
                let behind = now.views().find(|(_, view)| view.storage_version != Some(target));
                let who = behind.map(|(name, _)| name.to_owned()).unwrap_or_default();
                return Err(ActionError::Failed(format!(
                    "{who} is not ready for {} after {:?}: check its log, or cancel the downgrade (`state: cancelled`)",
                    text(target),
                    self.module.timeout.0
                )));
            }
            context.wait(PAUSE).await?;
        }
    }

    async fn cancel(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        leader: &MemberClient,
        now: &Observation,
    ) -> Result<Outcome, ActionError> {
        if now.views().all(|(_, view)| view.downgrade.is_none()) {
            return Ok(told(Outcome::ok(), now));
        }
        if context.check_mode() {
            return Ok(told(Outcome { msg: "would be called off".into(), ..Outcome::changed() }, now));
        }
        fence(context).await?;
        self.ask(leader, DowngradeOptions::Cancel).await.map_err(etcd_failed)?;
        let now = observe(clients, LOOK).await;
        Ok(told(Outcome { msg: "called off".into(), ..Outcome::changed() }, &now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcdrun_etcd::etcd::observe::{Seen, View};

    /// A member's version, what it says of the cluster and of its data, and to where a downgrade is allowed.
    type Said = (&'static str, Series, Option<Series>, Option<Series>);

    fn ready(target: Series, members: &[Said]) -> bool {
        let seen = (1..).zip(members).map(|(id, (version, cluster, storage_version, downgrade))| Seen {
            name: format!("etcd-{id}"),
            answer: Ok(View {
                counted: None,
                id,
                cluster_id: 7,
                version: version.parse().unwrap(),
                cluster_version: Some(*cluster),
                storage_version: *storage_version,
                downgrade: *downgrade,
                leader: Some(1),
                term: 1,
                raft_index: 1,
                applied_index: 1,
                revision: 1,
                db_size: 0,
                db_in_use: 0,
                quota: None,
                is_learner: false,
                alarms: Vec::new(),
                complaints: Vec::new(),
                list: Ok(Vec::new()),
                read: Ok(()),
                lacks_majority: false,
            }),
        });
        is_ready(&Observation { members: seen.collect(), auth: None }, target)
    }

    const OLD: Series = (3, 5);
    const NEW: Series = (3, 6);

    #[test]
    fn with_an_old_member_left_the_others_go_back_without_a_downgrade() {
        let old: Said = ("3.5.34", OLD, None, None);
        let new: Said = ("3.6.15", OLD, Some(OLD), None);
        assert!(ready(OLD, &[new, new, old]));
        assert!(ready((3, 4), &[("3.5.34", (3, 4), None, None), ("3.4.45", (3, 4), None, None)]));
        assert!(!ready(OLD, &[("3.6.15", NEW, Some(NEW), None), old]), "the cluster is not what it says");
    }

    #[test]
    fn without_one_etcd_has_to_agree_and_the_data_has_to_be_ready() {
        let agreed: Said = ("3.6.15", OLD, Some(OLD), Some(OLD));
        assert!(ready(OLD, &[agreed, agreed]));
        assert!(!ready(OLD, &[agreed, ("3.6.15", OLD, Some(NEW), Some(OLD))]));
        assert!(!ready(OLD, &[("3.6.15", NEW, Some(NEW), None)]));
        assert!(!ready(OLD, &[]));
    }
}
