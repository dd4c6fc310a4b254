//! `etcd_service`: a member that runs, with what it should have read.

use std::{
    collections::HashMap,
    sync::{Arc, LazyLock, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField,
    cluster::{Cluster, ClusterArgs, ClusterKey, led},
};
use crate::{
    etcd::{
        ClusterStatus, EtcdError, MemberClient,
        lead::{hand_over, successors},
        look,
    },
    model::{Disruption, Effects, Outcome, Resource, Value},
    remote::Payload,
};

const BODY: &str = concat!(include_str!("../systemd.sh"), include_str!("service.sh"));
const UNIT: &str = "etcd.service";
const HAND_OVER: Duration = Duration::from_secs(10);
/// How long the others may take to be well.
const SOON: Duration = Duration::from_secs(15);

/// Starts etcd on a member, and restarts it where files changed that it reads only when it starts.
///
/// Members restart one at a time, each only while the others have a majority without it; where they do not yet, they have 15
/// seconds. The leader first hands over to another. A member that restarts is awaited: until it answers, and has caught up.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdService {
    /// The member that the target is.
    name: String,
    #[serde(default)]
    cluster: ClusterArgs,
    /// The program that should run; another one that runs gives way to it.
    #[serde(default)]
    server: Option<String>,
    /// Files that etcd reads when it starts.
    #[serde(default)]
    reads: Vec<String>,
    /// Restart also where the cluster stops answering meanwhile, as one of one or two members does.
    #[serde(default)]
    allow_outage: bool,
}

impl Module for EtcdService {
    const NAME: &'static str = "etcd_service";
    const CLUSTER: &'static [ClusterKey] = ClusterKey::ALL;
    const EXAMPLE: &'static str = "\
- name: Service
  etcd_service:
    name: \"{{ inventory_hostname }}\"
    reads: [/etc/etcd/etcd.env, /etc/etcd/pki/server.key, /etc/etcd/pki/ca.crt]
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "restarted", doc: "Whether it ran before." }];

    fn effects(&self) -> Effects {
        // What it reads may be about to change, and then nobody knows whether it restarts.
        Effects::converging().disrupting(Disruption::Maybe).careful().reading(self.reads.iter().map(Resource::path))
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Converge { cluster, module: self })))
    }
}

struct Converge {
    module: EtcdService,
    cluster: Cluster,
}

/// One member of a cluster at a time.
fn turn(cluster: &str) -> Arc<tokio::sync::Mutex<()>> {
    static TURNS: LazyLock<Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>> = LazyLock::new(Mutex::default);
    TURNS.lock().unwrap_or_else(PoisonError::into_inner).entry(cluster.to_owned()).or_default().clone()
}

#[async_trait]
impl EngineAction for Converge {
    async fn run(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        let looked = context.run(self.payload("look")).await?;
        let text = |name: &str| looked.data.get(name).and_then(Value::as_str);
        match (text("state"), text("newer")) {
            _ if looked.failed => Ok(looked),
            (Some("missing"), _) if context.check_mode() => {
                Ok(Outcome { msg: "would be started".into(), ..Outcome::changed() })
            }
            (Some("active"), None) => Ok(Outcome::ok().with("restarted", false)),
            (Some("active"), Some(newer)) if context.check_mode() => {
                Ok(Outcome { msg: format!("would restart: {newer} is newer"), ..Outcome::changed() })
            }
            (Some("active"), Some(newer)) => self.restart(context, newer).await,
            _ => Ok(context.run(self.payload("start")).await?.with("restarted", false)),
        }
    }
}

impl Converge {
    fn payload(&self, action: &str) -> Payload {
        let payload = Payload::new(BODY)
            .value("unit", UNIT)
            .value("action", action)
            .value("server", self.module.server.as_deref().unwrap_or_default());
        self.module.reads.iter().fold(payload, Payload::arg)
    }

    async fn restart(&self, context: &ActionContext, newer: &str) -> Result<Outcome, ActionError> {
        let turn = turn(&self.cluster.name);
        let _mine = turn.lock().await;
        let clients = self.cluster.clients(context).await?;
        let before = self.spared(&clients).await?;
        self.hand_over(&clients, &before).await?;
        let outcome = context.run(self.payload("restart")).await?;
        if outcome.failed {
            return Ok(outcome);
        }
        self.await_healthy(&clients, &before).await?;
        Ok(Outcome { msg: format!("{newer} is newer"), ..outcome }.with("restarted", true))
    }

    /// How things are once the others can do without this one. Where they elect, or one of them has just started, they soon can.
    async fn spared(&self, clients: &[MemberClient]) -> Result<ClusterStatus, ActionError> {
        let (start, voters) = (Instant::now(), self.cluster.members.len());
        let could_be = voters > voters / 2 + 1;
        loop {
            let status = look(clients).await;
            match self.can_spare(&status) {
                Err(_) if could_be && start.elapsed() < SOON => sleep(Duration::from_millis(100)).await,
                result => return result.map(|()| status),
            }
        }
    }

    /// The others must be a majority of all, whatever state this one is in.
    fn can_spare(&self, status: &ClusterStatus) -> Result<(), ActionError> {
        let name = &self.module.name;
        let voters = self.cluster.members.len();
        let others = status.members.iter().flatten().filter(|member| member.name != *name && member.is_healthy);
        let (others, majority) = (others.count(), voters / 2 + 1);
        if others >= majority || self.module.allow_outage {
            return Ok(());
        }
        let trouble = status.members.iter().find_map(|member| member.as_ref().err());
        let trouble = trouble.map(|error| format!(" ({error})")).unwrap_or_default();
        Err(ActionError::Failed(format!(
            "{name} has to restart, but only {others} of the other members are well{trouble}, and {majority} of {voters} must be: the cluster would stop answering; set `etcd_allow_outage` to restart nevertheless"
        )))
    }

    /// Who leads is asked again just before. Afterwards another one leads, and the others serve with it.
    async fn hand_over(&self, clients: &[MemberClient], status: &ClusterStatus) -> Result<(), ActionError> {
        let name = self.module.name.as_str();
        let Some(own) = clients.iter().find(|client| &*client.name == name) else { return Ok(()) };
        if status.leader() != Some(name) {
            return Ok(());
        }
        let now = led(clients).await;
        let client_of = |name: &str| clients.iter().find(|client| *client.name == *name).cloned();
        let others: Vec<_> = successors(&now, name)
            .unwrap_or_default()
            .into_iter()
            .filter_map(|other| client_of(&other.name).map(|client| (other, client)))
            .collect();
        if others.is_empty() {
            // It leads no more, or is alone, which was allowed.
            return Ok(());
        }
        let failed = |error: EtcdError| ActionError::Failed(format!("cannot hand over the lead: {error}"));
        hand_over(own, &others, HAND_OVER).await.map(drop).map_err(failed)
    }

    /// It answers, and has applied all that was there before.
    async fn await_healthy(&self, clients: &[MemberClient], before: &ClusterStatus) -> Result<(), ActionError> {
        const LIMIT: Duration = Duration::from_secs(120);
        let name = self.module.name.as_str();
        let own: Vec<MemberClient> = clients.iter().filter(|client| &*client.name == name).cloned().collect();
        let index = before.members.iter().flatten().map(|member| member.raft_index).max().unwrap_or_default();
        let start = Instant::now();
        loop {
            let problem = match look(&own).await.members.into_iter().next() {
                Some(Ok(member)) if !member.is_healthy || member.leader.is_none() => {
                    "it does not answer reads".to_owned()
                }
                Some(Ok(member)) if member.applied_index < index => "it has not caught up".to_owned(),
                Some(Ok(_)) | None => return Ok(()),
                Some(Err(error)) => error.to_string(),
            };
            if start.elapsed() >= LIMIT {
                return Err(ActionError::Failed(format!("{name} is not well {LIMIT:?} after its restart: {problem}")));
            }
            sleep(Duration::from_millis(100)).await;
        }
    }
}

/// A member's service that does not run, and why.
pub(super) enum Down {
    /// Somebody stopped it, and nobody starts it.
    Stopped(String),
    /// It was given up.
    Failed(String),
    /// It starts over and over.
    Restarting(String),
}

impl Down {
    pub fn text(self) -> String {
        let (Self::Stopped(text) | Self::Failed(text) | Self::Restarting(text)) = self;
        text
    }
}

/// Why a member's service does not run although it was started, and will not by itself, if that is so.
pub(super) async fn trouble(context: &ActionContext, member: &str) -> Option<String> {
    match down(context, member).await? {
        Down::Stopped(_) => None,
        other => Some(other.text()),
    }
}

pub(super) async fn down(context: &ActionContext, member: &str) -> Option<Down> {
    let session = context.reach.session(member, &context.session)?;
    let payload = Payload::new(BODY).value("unit", UNIT).value("action", "trouble").value("server", "");
    let outcome = session.run_one(payload, false).await.ok()?;
    let text = |name: &str| outcome.data.get(name).and_then(Value::as_str);
    let said = format!("etcd does not stay up on {member}:\n{}", text("said")?);
    Some(match text("state") {
        Some("inactive") => {
            Down::Stopped(format!("etcd is stopped on {member}; `systemctl start etcd` there starts it"))
        }
        Some("failed") => Down::Failed(said),
        _ => Down::Restarting(said),
    })
}
