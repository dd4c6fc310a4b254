//! `etcd_canary`: sees what clients see, while something is done to the members.

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Action, ActionContext, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
};
use crate::model::{Effects, Outcome, Seconds};
use etcdrun_etcd::etcd::{Canary, Sight};

/// Writes and reads a key several times a second, from when it is first called to when it is stopped.
///
/// Each call reports how the cluster has answered since: how many writes were acknowledged, which calls failed, and the longest
/// time without an acknowledged write. It fails if that was longer than `max_stall`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdCanary {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The key.
    #[serde(default = "key")]
    key: String,
    /// The maximum time without an answer.
    #[serde(default = "max_stall")]
    max_stall: Seconds,
    #[serde(default)]
    state: State,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum State {
    /// The canary runs.
    #[default]
    Started,
    /// The canary is stopped.
    Stopped,
}

fn key() -> String {
    "/etcdrun/canary".into()
}

fn max_stall() -> Seconds {
    Seconds(Duration::from_secs(5))
}

impl Module for EtcdCanary {
    const NAME: &'static str = "etcd_canary";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Start the canary
  etcd_canary:
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "writes", doc: "Writes that were acknowledged and read back." },
        ResultField { name: "errors", doc: "Calls that failed." },
        ResultField { name: "longest_gap", doc: "The longest time between two acknowledged writes, in seconds." },
        ResultField { name: "problems", doc: "The errors of the first failed calls." },
    ];

    fn effects(&self) -> Effects {
        // Its key is its own: nothing on a host, and nothing that anyone else has.
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Call { cluster, module: self })))
    }
}

struct Call {
    module: EtcdCanary,
    cluster: Cluster,
}

/// The canary of a cluster, which ends with the run at the latest.
#[derive(Default)]
struct Cage(Mutex<Option<Canary>>);

impl EngineAction for Call {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let (EtcdCanary { key, state, .. }, cluster) = (&self.module, &self.cluster.name);
            if context.check_mode() {
                return Ok(Outcome::ok());
            }
            let cage = context.scope.kept::<Cage>(cluster);
            let canary = || cage.0.lock().unwrap_or_else(PoisonError::into_inner);
            if *state == State::Stopped {
                let stopped = canary().take();
                return Ok(match stopped {
                    Some(canary) => self.told(&canary.sight()),
                    None => Outcome { msg: "there was none".into(), ..Outcome::ok() },
                });
            }
            let sight = canary().as_ref().map(Canary::sight);
            if let Some(sight) = sight {
                return Ok(self.told(&sight));
            }
            let clients = self.cluster.clients(context).await?;
            *canary() = Some(Canary::start(clients, key.clone()));
            Ok(self.told(&Sight::default()))
        })
    }
}

impl Call {
    fn told(&self, sight: &Sight) -> Outcome {
        let (longest, limit) = (sight.longest, self.module.max_stall.0);
        let milliseconds = longest.as_millis();
        let msg = format!(
            "{} writes, {} errors, longest gap {milliseconds} ms (limit {})",
            sight.writes, sight.errors, self.module.max_stall
        );
        let outcome = Outcome { msg, ..Outcome::ok() }
            .with("writes", sight.writes)
            .with("errors", sight.errors)
            .with("longest_gap", longest.as_secs_f64())
            .with("problems", sight.words.clone());
        if longest <= limit {
            return outcome;
        }
        let why = sight.words.last().map(|words| format!(": {words}")).unwrap_or_default();
        let msg = format!(
            "the cluster did not answer for {milliseconds} ms, the limit is {}{why}; find out why before you go on; if your disks or network \
             are this slow, pass a higher limit with `-e rollout_max_stall=`",
            self.module.max_stall
        );
        Outcome { failed: true, refused: true, msg, ..outcome }
    }
}
