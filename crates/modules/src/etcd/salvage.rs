//! `etcd_salvage`: what is left of a cluster that has lost its majority, and the way on which the least of it is lost.

use std::time::Duration;

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, timeout};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, Member, WHOLE_CLUSTER},
    service::{Down, down},
};
use crate::{
    model::{Effects, Outcome, Resource},
    remote::Payload,
};
use etcdrun_etcd::{etcd::UNIT, etcd::observe::observe};

/// Inspects what data every member of a cluster without quorum still has. If a majority has its data, it is enough to start
/// etcd there; otherwise it takes a snapshot of the most up-to-date member.
///
/// That is the member with the highest term, then the highest index, as Raft itself would choose. The
/// snapshot comes from an etcd on a copy of that member's data, which treats its whole log as committed: an entry that was
/// acknowledged is in it, if this member ever had it. The data itself is not changed. A cluster that serves, or that might, is
/// refused.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdSalvage {
    /// The step.
    state: SalvageState,
    #[serde(default)]
    cluster: ClusterArgs,
    /// The data directory.
    data_dir: String,
    /// The owner of the data.
    user: String,
    /// The file with the settings of etcd.
    environment: String,
    /// The member to take it from; default: the most up-to-date one. For `saved` it is the target itself.
    #[serde(default)]
    pub(super) through: Option<String>,
    /// Continue although it is unknown whether the cluster serves, or although a restore was interrupted.
    #[serde(default)]
    pub(super) force: bool,
    /// The number of members that must run so that the cluster serves, as returned by `looked`.
    #[serde(default)]
    majority: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum SalvageState {
    /// The data of every member is known.
    Looked,
    /// etcd was started on the target.
    Started,
    /// The cluster serves again.
    Served,
    /// A snapshot of the target's data is in the state directory.
    Saved,
}

impl Module for EtcdSalvage {
    const NAME: &'static str = "etcd_salvage";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Inspect surviving data
  etcd_salvage:
    state: looked
    data_dir: /var/lib/etcd/data
    user: etcd
    environment: /etc/etcd/etcd.env
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "lines", doc: "What every member has, a line each." },
        ResultField { name: "way", doc: "`start`, where it is enough to start etcd, or `salvage`." },
        ResultField { name: "start", doc: "The members on which etcd is to be started." },
        ResultField { name: "majority", doc: "How many members have to run so that the cluster serves." },
        ResultField { name: "best", doc: "The member that has the most." },
        ResultField { name: "proposal", doc: "The way on which the least is lost." },
        ResultField { name: "dest", doc: "The snapshot." },
        ResultField { name: "revision", doc: "Its revision." },
    ];

    fn effects(&self) -> Effects {
        match self.state {
            SalvageState::Looked | SalvageState::Served => Effects::read_only(),
            SalvageState::Started => Effects::converging().writing([Resource::Unit(UNIT.into())]),
            // The member stops, and whether it may has been asked by the look before.
            SalvageState::Saved => {
                let written = [Resource::tree(&self.data_dir), Resource::Unit(UNIT.into())];
                Effects { here: true, ..Effects::converging() }.writing(written)
            }
        }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        if !self.data_dir.starts_with('/') || self.data_dir.len() < 2 {
            return Err(ModuleError::new(format!("`{}` is not an absolute path", self.data_dir)));
        }
        if let Some(name) = self.through.as_ref().filter(|name| cluster.member(name).is_none()) {
            return Err(ModuleError::new(format!("`{name}` is no member of `{}`", cluster.name)));
        }
        Ok(Action::Engine(Box::new(Salvage { cluster, module: self })))
    }
}

pub(super) struct Salvage {
    pub(super) module: EtcdSalvage,
    pub(super) cluster: Cluster,
}

/// How long a host may take to say what there is before it counts as one that does not answer.
pub(super) const ANSWER: Duration = Duration::from_secs(20);
/// How long etcd may take to come back: it reads its whole database first.
const PATIENCE: Duration = Duration::from_secs(600);
/// How long one that falls at its start may try again.
const GRACE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(500);

impl EngineAction for Salvage {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            match self.module.state {
                SalvageState::Looked => self.report(context).await,
                SalvageState::Started => self.start(context).await,
                SalvageState::Served => self.await_service(context).await,
                SalvageState::Saved => self.save(context).await,
            }
        })
    }
}

impl Salvage {
    async fn start(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        if context.check_mode() {
            return Ok(Outcome { msg: "would start etcd".into(), ..Outcome::changed() });
        }
        context.run(self.payload("begin")).await
    }

    /// Waits for a member that answers reads, as long as enough of them run.
    async fn await_service(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        if context.check_mode() {
            return Ok(Outcome { unknown: true, msg: "would wait until it serves".into(), ..Outcome::ok() });
        }
        let clients = self.cluster.clients(context).await?;
        let begun = Instant::now();
        loop {
            let now = observe(&clients, LOOK).await;
            let serving: Vec<&str> = now.views().filter(|(_, view)| view.read.is_ok()).map(|(name, _)| name).collect();
            if !serving.is_empty() {
                let msg = format!("`{}` serves again: {}", self.cluster.name, serving.join(", "));
                return Ok(Outcome { msg, ..Outcome::ok() });
            }
            if begun.elapsed() > GRACE {
                self.enough_run(context).await?;
            }
            if begun.elapsed() > PATIENCE {
                return Err(self.in_vain("its members run, but there is no leader", &[]));
            }
            context.wait(PAUSE).await?;
        }
    }

    async fn enough_run(&self, context: &ActionContext) -> Result<(), ActionError> {
        let ask = |member: &Member| {
            let name = member.name.clone();
            async move { Some((timeout(ANSWER, down(context, &name)).await.ok()??, name)) }
        };
        let down: Vec<(Down, String)> =
            join_all(self.cluster.members.iter().map(ask)).await.into_iter().flatten().collect();
        if self.cluster.members.len() - down.len() >= self.module.majority {
            return Ok(());
        }
        let (why, names): (Vec<String>, Vec<String>) = down.into_iter().map(|(why, name)| (why.text(), name)).unzip();
        Err(self.in_vain(&why.join("; "), &names))
    }

    /// The member that has the most is no way out if its own data is why it does not run.
    fn in_vain(&self, why: &str, down: &[String]) -> ActionError {
        let cluster = &self.cluster.name;
        let best =
            self.module.through.as_deref().filter(|best| !down.iter().any(|name| name == best)).unwrap_or("MEMBER");
        ActionError::Failed(format!(
            "`{cluster}` does not serve although etcd was started: {why}. Fix that, and nothing is lost; or create a new cluster from the data of one member: `etcdrun recover {cluster} --through {best}`"
        ))
    }

    pub(super) fn payload(&self, action: &str) -> Payload {
        let EtcdSalvage { data_dir, user, environment, .. } = &self.module;
        Payload::new(include_str!("salvage.sh"))
            .value("action", action)
            .value("data_dir", data_dir)
            .value("user", user)
            .value("environment", environment)
    }
}
