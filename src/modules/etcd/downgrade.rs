//! `etcd_downgrade`: etcd's leave to go back a minor version.

use std::time::Duration;

use async_trait::async_trait;
use etcd_client::DowngradeOptions;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField,
    cluster::{Cluster, ClusterArgs, ClusterKey, etcd_failed, fence, leader, led},
};
use crate::{
    etcd::{
        MemberClient,
        observe::{Observation, Series, observe},
    },
    model::{Effects, Outcome, Seconds, Version},
};

/// Asks etcd whether its data can go back to the minor version before, lets it, or calls it off. From 3.6 on.
///
/// Once it is enabled, this waits until every member says that version for the cluster and for its data: only then may the
/// first member be put back. The members themselves are left alone.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdDowngrade {
    /// What is to be done.
    state: DowngradeState,
    /// The version to go back to; its minor version counts.
    #[serde(default)]
    version: Option<Version>,
    #[serde(default)]
    cluster: ClusterArgs,
    /// Give up waiting after this long.
    #[serde(default = "one_minute")]
    timeout: Seconds,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum DowngradeState {
    /// It could be done.
    Validated,
    /// It is allowed, and the data is ready for it.
    Enabled,
    /// It is not allowed any more.
    Cancelled,
}

fn one_minute() -> Seconds {
    Seconds(Duration::from_secs(60))
}

impl Module for EtcdDowngrade {
    const NAME: &'static str = "etcd_downgrade";
    const CLUSTER: &'static [ClusterKey] = ClusterKey::ALL;
    const EXAMPLE: &'static str = "\
- name: The way down is open
  etcd_downgrade:
    state: enabled
    version: 3.5.34
  once_per: cluster
";
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "cluster_version", doc: "The cluster version that the leader says." }];

    fn validate(&self) -> Result<(), ModuleError> {
        match (self.state, &self.version) {
            (DowngradeState::Validated | DowngradeState::Enabled, None) => {
                Err(ModuleError::new("`version` is missing").help("say to which version it goes back"))
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

#[async_trait]
impl EngineAction for Downgrade {
    async fn run(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        let EtcdDowngrade { state, version, .. } = &self.module;
        let clients = self.cluster.clients(context).await?;
        let now = led(&clients).await;
        let leader = leader(&clients, &now)?;
        let target = version.unwrap_or_default().series();
        match state {
            DowngradeState::Cancelled => self.cancel(context, &clients, leader, &now).await,
            _ if is_ready(&now, target) => Ok(told(Outcome::ok(), &now)),
            DowngradeState::Validated => {
                self.validated(leader, &now, target).await?;
                Ok(told(Outcome { msg: format!("{} is possible", text(target)), ..Outcome::ok() }, &now))
            }
            DowngradeState::Enabled => self.enable(context, &clients, leader, &now, target).await,
        }
    }
}

/// Every member is about to go there, or runs it already, and its data is ready.
fn is_ready(now: &Observation, target: Series) -> bool {
    let mut views = now.views().peekable();
    views.peek().is_some()
        && views.all(|(_, view)| {
            let goes = view.downgrade == Some(target) || view.version.series() == target;
            let data = view.storage_version.is_none_or(|version| version == target);
            goes && data && view.cluster_version == Some(target)
        })
}

fn text(series: Series) -> String {
    format!("{}.{}", series.0, series.1)
}

fn told(outcome: Outcome, now: &Observation) -> Outcome {
    let version = now.leader().and_then(|(_, view)| view.cluster_version).map(text).unwrap_or_default();
    outcome.with("cluster_version", version)
}

impl Downgrade {
    async fn validated(&self, leader: &MemberClient, now: &Observation, target: Series) -> Result<(), ActionError> {
        let old = now.views().find(|(_, view)| view.version.series() < (3, 6) && view.version.series() > target);
        if let Some((name, view)) = old {
            return Err(ActionError::Failed(format!(
                "{name} runs {}, and etcd has a way down from 3.6 on only: restore a snapshot that was taken before the upgrade",
                view.version
            )));
        }
        let mut client = leader.client().await.map_err(etcd_failed)?.maintenance_client();
        let validate = DowngradeOptions::Validate(text(target));
        leader.bounded(client.downgrade(validate)).await.map(drop).map_err(etcd_failed)
    }

    async fn enable(
        &self,
        context: &ActionContext,
        clients: &[MemberClient],
        leader: &MemberClient,
        now: &Observation,
        target: Series,
    ) -> Result<Outcome, ActionError> {
        let is_enabled = now.views().any(|(_, view)| view.downgrade == Some(target));
        if !is_enabled {
            self.validated(leader, now, target).await?;
        }
        if context.check_mode() {
            return Ok(told(Outcome { msg: format!("would go down to {}", text(target)), ..Outcome::changed() }, now));
        }
        if !is_enabled {
            fence(context).await?;
            let mut client = leader.client().await.map_err(etcd_failed)?.maintenance_client();
            let enable = DowngradeOptions::Enable(text(target));
            leader.bounded(client.downgrade(enable)).await.map_err(etcd_failed)?;
        }
        let start = Instant::now();
        loop {
            let now = observe(clients, LOOK).await;
            if is_ready(&now, target) {
                return Ok(told(Outcome { msg: format!("ready for {}", text(target)), ..Outcome::changed() }, &now));
            }
            if start.elapsed() >= self.module.timeout.0 {
                let behind = now.views().find(|(_, view)| view.storage_version != Some(target));
                let who = behind.map(|(name, _)| name.to_owned()).unwrap_or_default();
                return Err(ActionError::Failed(format!(
                    "{who} is not ready for {} after {:?}: look at its log, or call it off (`state: cancelled`)",
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
        let mut client = leader.client().await.map_err(etcd_failed)?.maintenance_client();
        leader.bounded(client.downgrade(DowngradeOptions::Cancel)).await.map_err(etcd_failed)?;
        let now = observe(clients, LOOK).await;
        Ok(told(Outcome { msg: "called off".into(), ..Outcome::changed() }, &now))
    }
}
