//! `etcd_defrag`: a member's database gives back what it does not use.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER, etcd_failed, fence, led},
};
use crate::model::{Disruption, Effects, Outcome, Seconds};
use etcdrun_etcd::etcd::{
    observe::{AlarmKind, see},
    rules::{Consent, Gate, Profile, Situation, judge},
};

/// Defragments the database of one member, if enough of it is unused, or while there is the alarm NOSPACE.
///
/// The member does not answer during this, so the others must be a majority. The leader comes last: it also blocks
/// all writes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdDefrag {
    /// The member.
    name: String,
    #[serde(default)]
    cluster: ClusterArgs,
    /// How much of the database must be unused, in percent.
    #[serde(default = "ten_percent")]
    unused: u8,
    /// Accept that the cluster loses quorum during this (needed for one or two members).
    #[serde(default)]
    allow_outage: bool,
    /// The timeout.
    #[serde(default = "ten_minutes")]
    timeout: Seconds,
}

fn ten_percent() -> u8 {
    10
}

fn ten_minutes() -> Seconds {
    Seconds(Duration::from_secs(600))
}

impl Module for EtcdDefrag {
    const NAME: &'static str = "etcd_defrag";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Defragment the database
  etcd_defrag:
    name: \"{{ inventory_hostname }}\"
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "before", doc: "The size of the database before, in bytes." },
        ResultField { name: "after", doc: "Its size now." },
    ];

    fn effects(&self) -> Effects {
        Effects::converging().disrupting(Disruption::Maybe).careful()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Defragment { cluster, module: self })))
    }
}

struct Defragment {
    module: EtcdDefrag,
    cluster: Cluster,
}

const LOOK: Duration = Duration::from_secs(10);

impl EngineAction for Defragment {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let (EtcdDefrag { name, unused, .. }, cluster) = (&self.module, &self.cluster.name);
            let clients = self.cluster.clients(context).await?;
            let own = clients.iter().find(|client| *client.name == **name);
            let own = own.ok_or_else(|| ActionError::Failed(format!("{name} is not a member of `{cluster}`")))?;
            let now = led(&clients).await;
            let view = now.view(name).ok_or_else(|| ActionError::Failed(format!("{name} does not answer")))?;
            let (size, in_use) = (view.db_size, view.db_in_use);
            let free = size.saturating_sub(in_use) * 100 / size.max(1);
            let outcome = Outcome { msg: format!("{free} % of {size} bytes are unused"), ..Outcome::ok() };
            // Without writes a database does not know what it has let go of, and with this alarm there are none.
            let is_full = now.views().any(|(_, view)| view.alarms.iter().any(|alarm| alarm.kind == AlarmKind::Nospace));
            if free < u64::from(*unused) && !is_full {
                return Ok(outcome.with("before", size).with("after", size));
            }
            if context.check_mode() {
                return Ok(Outcome { changed: true, ..outcome }.with("before", size));
            }
            let names = self.cluster.names();
            let consent = Consent { outage: self.module.allow_outage, ..Consent::default() };
            let situation = Situation {
                cluster,
                command: &context.command,
                target: Some(name),
                consent,
                ..Situation::new(&names, &now)
            };
            let verdict = judge(Profile::Nospace, Gate::Stop, &situation);
            if !verdict.holds() {
                return Err(ActionError::Failed(verdict.told()));
            }
            fence(context).await?;
            let patient = own.patient(self.module.timeout.0);
            let mut client = patient.client().await.map_err(etcd_failed)?;
            patient.bounded(client.defragment()).await.map_err(etcd_failed)?;
            let after = see(own, LOOK).await.answer.map_err(ActionError::Failed)?.db_size;
            Ok(Outcome { msg: format!("{size} bytes before, {after} now"), changed: after < size, ..Outcome::ok() }
                .with("before", size)
                .with("after", after))
        })
    }
}
