//! `etcd_gate`: waits until the rules for a change hold.

use std::{path::PathBuf, time::Duration};

use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::Instant;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running, Traits,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
    hosts::{Questions, Server, see_hosts, ways},
    local,
    service::{Down, down},
};
use crate::{
    model::RolloutPart,
    model::{Effects, Outcome, Seconds, Value, Version},
};
use etcdrun_etcd::etcd::{
    agree::agreement,
    observe::{Observation, observe},
    rules::{
        Consent, Decided, Finding, Gate, HostSeen, MemberChange, Profile, Situation, SnapshotSeen, Step, Verdict, judge,
    },
    snapshot,
};

/// Waits until all rules for a change of a cluster pass, and reports which fail.
///
/// It is read-only. Which rules apply depends on the kind of change (`profile`) and the time (`gate`); docs/gates.md has the list.
/// A rule that cannot pass by waiting fails at once, any other at the timeout.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdGate {
    #[serde(default)]
    cluster: ClusterArgs,
    /// What to do.
    profile: Profile,
    /// The point of the rollout.
    #[serde(default)]
    gate: Gate,
    /// The member being changed.
    #[serde(default)]
    name: Option<String>,
    /// Other members that stop with it, because they are on the same hypervisor.
    #[serde(default)]
    along: Vec<String>,
    /// The membership change.
    #[serde(default)]
    change: Option<MemberChange>,
    /// The state of the member being changed when its removal was decided. If it has changed since, the gate refuses.
    #[serde(default)]
    decided: Option<Decided>,
    /// The guest of the member being changed is powered off before its removal.
    #[serde(default)]
    fenced: bool,
    /// For an upgrade: the old version.
    #[serde(default)]
    from: Option<Version>,
    /// For an upgrade: the new version.
    #[serde(default)]
    to: Option<Version>,
    /// The new etcd binary on the members, and its checksum in `etcd_releases`.
    #[serde(default)]
    server: Option<GateServer>,
    /// A snapshot on the operator's workstation, which is verified; `false` if none is required.
    #[serde(default)]
    snapshot: Option<Value>,
    /// The field `observation` of an earlier gate, for rules that compare.
    #[serde(default)]
    before: Option<Value>,
    /// The data directory.
    #[serde(default = "super::data_dir")]
    data_dir: String,
    /// Accept that the cluster loses quorum (needed for one or two members).
    #[serde(default)]
    allow_outage: bool,
    /// Upgrade from 3.4 to 3.5 with authentication enabled.
    #[serde(default)]
    allow_auth_hop: bool,
    /// The timeout.
    #[serde(default = "one_minute")]
    timeout: Seconds,
}

#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct GateServer {
    /// The file on the members.
    #[serde(default)]
    path: String,
    /// The checksum of the release in `etcd_releases`.
    #[serde(default)]
    sha256: String,
}

fn one_minute() -> Seconds {
    Seconds(Duration::from_secs(60))
}

impl Module for EtcdGate {
    const NAME: &'static str = "etcd_gate";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const TRAITS: Traits = Traits { rollout: Some(RolloutPart::Gate), ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Check gates before the restart
  etcd_gate:
    profile: restart
    name: \"{{ inventory_hostname }}\"
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "observation", doc: "The state of every member; pass it to `before` of a later gate." },
        ResultField { name: "cluster", doc: "The cluster's name." },
        ResultField { name: "gate", doc: "When this was." },
        ResultField { name: "findings", doc: "The result of each rule: `rule`, `answer`, `what`, `way_out`." },
    ];

    fn effects(&self) -> Effects {
        Effects::read_only().perishable()
    }

    fn action(self, context: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        if self.server.as_ref().is_some_and(|server| server.path.is_empty() || server.sha256.is_empty()) {
            return Err(ModuleError::new("`server` needs a `path` and a `sha256`"));
        }
        let step = match (self.from, self.to) {
            (Some(from), Some(to)) => Some(Step { from, to }),
            (None, None) => None,
            _ => return Err(ModuleError::new("`from` and `to` go together")),
        };
        let before = match self.before.clone() {
            None | Some(Value::Null) => None,
            Some(value) => Some(serde_json::from_value(value).map_err(|error| {
                ModuleError::new(format!("`before` is not what a gate has seen: {error}"))
                    .help("register an earlier `etcd_gate`, and pass its field `observation`")
            })?),
        };
        let (snapshot, no_snapshot) = match &self.snapshot {
            None | Some(Value::Null) => (None, false),
            Some(Value::Bool(false)) => (None, true),
            Some(Value::String(path)) => {
                let given = local::with_home(path);
                (Some(context.file_paths.last().map_or_else(|| given.clone(), |folder| folder.join(&given))), false)
            }
            Some(_) => return Err(ModuleError::new("`snapshot` is a file, or `false`")),
        };
        let consent =
            Consent { outage: self.allow_outage, auth_hop: self.allow_auth_hop, no_snapshot, fenced: self.fenced };
        Ok(Action::Engine(Box::new(Wait { cluster, step, before, snapshot, consent, module: self })))
    }
}

struct Wait {
    module: EtcdGate,
    cluster: Cluster,
    step: Option<Step>,
    before: Option<Observation>,
    snapshot: Option<PathBuf>,
    consent: Consent,
}

const PAUSE: Duration = Duration::from_millis(100);
/// Between looks for something that etcd itself does every few seconds: all members are asked each time, while they serve others.
const LONG_PAUSE: Duration = Duration::from_millis(300);
/// How often hosts are asked why a member does not answer.
const LOOK_AT_HOSTS: Duration = Duration::from_secs(2);
/// How long a single look may take.
const LOOK: Duration = Duration::from_secs(10);
/// How long the first one may take, which only wants to know how far the leader is: a host that is gone would hold it up for nothing.
const FIRST_LOOK: Duration = Duration::from_secs(2);

impl EngineAction for Wait {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let EtcdGate { profile, gate, timeout, .. } = self.module;
            let clients = match self.cluster.clients(context).await {
                // A plan may be of a cluster that does not exist yet.
                Err(ActionError::Failed(msg)) if context.check_mode() => {
                    return Ok(Outcome { unknown: true, msg, ..Outcome::ok() });
                }
                clients => clients?,
            };
            let (names, peers) = (self.cluster.names(), self.cluster.peer_urls());
            let snapshot = self.verified_snapshot().await;
            let data = match gate {
                Gate::Begin if context.check_mode() => {
                    let msg = "would compare the data of the members".to_owned();
                    return Ok(Outcome { unknown: true, msg, ..Outcome::ok() });
                }
                Gate::Begin => Some(agreement(&clients, &observe(&clients, LOOK).await).await),
                _ => None,
            };
            let (start, mut next_look) = (Instant::now(), LOOK_AT_HOSTS);
            let mut mark = observe(&clients, FIRST_LOOK).await.mark();
            loop {
                let now = observe(&clients, LOOK).await;
                let hosts = self.hosts(context, &now).await;
                let situation = Situation {
                    peers: &peers,
                    client_port: Some(self.cluster.client_port),
                    cluster: &self.cluster.name,
                    command: &context.command,
                    before: self.before.as_ref(),
                    target: self.module.name.as_deref(),
                    along: &self.module.along,
                    mark: mark.or_else(|| now.mark()),
                    step: self.step,
                    hosts: &hosts,
                    snapshot,
                    data: data.as_ref(),
                    change: self.module.change,
                    decided: self.module.decided,
                    consent: self.consent,
                    ..Situation::new(&names, &now)
                };
                let verdict = judge(profile, gate, &situation);
                if verdict.holds() {
                    return Ok(self.told(&now, &verdict, format!("{} rules pass", verdict.findings.len())));
                }
                let may_change = |finding: &Finding| finding.may_change(gate, start.elapsed());
                let hopeless = !verdict.against().all(may_change);
                let is_over = start.elapsed() >= timeout.0;
                let is_due = is_over || start.elapsed() >= next_look;
                let causes = if is_due { self.causes(context, &now, is_over).await } else { Vec::new() };
                next_look = if is_due { start.elapsed() + LOOK_AT_HOSTS } else { next_look };
                if hopeless || context.check_mode() || is_over || !causes.is_empty() {
                    let said = std::iter::once(verdict.told()).chain(causes).collect::<Vec<_>>().join("\n");
                    let msg = match is_over && !hopeless && !context.check_mode() {
                        true => format!("the gate refuses, even after {:?}: {said}", timeout.0),
                        false => format!("the gate refuses: {said}"),
                    };
                    // A plan goes on: by then the gate may be open.
                    let outcome = self.told(&now, &verdict, msg);
                    return Ok(match context.check_mode() {
                        true => Outcome { unknown: true, ..outcome },
                        false => Outcome { failed: true, refused: true, ..outcome },
                    });
                }
                mark = mark.or_else(|| now.mark());
                context.wait(if gate == Gate::Settled { LONG_PAUSE } else { PAUSE }).await?;
            }
        })
    }
}

impl Wait {
    async fn hosts(&self, context: &ActionContext, now: &Observation) -> Vec<HostSeen> {
        // What is asked again and again after a start is asked of etcd alone.
        if matches!(self.module.gate, Gate::Begin | Gate::After | Gate::Settled | Gate::Back) {
            return Vec::new();
        }
        let EtcdGate { data_dir, server, .. } = &self.module;
        let server = server.as_ref().map(|server| Server { path: &server.path, sha256: &server.sha256, size: 0 });
        let target = self.module.name.as_deref();
        let questions = Questions { data_dir, client_port: self.cluster.client_port, server, target };
        see_hosts(&ways(context, &self.cluster.members), questions, now).await
    }

    /// Why members do not answer, as far as their hosts know. Before the time is over only of those that nobody will start
    /// again: there is nothing to wait for.
    async fn causes(&self, context: &ActionContext, now: &Observation, is_over: bool) -> Vec<String> {
        if context.check_mode() || !matches!(self.module.gate, Gate::Settled | Gate::After) {
            return Vec::new();
        }
        let mut reasons = Vec::new();
        for silent in now.members.iter().filter(|seen| seen.answer.is_err()) {
            match tokio::time::timeout(LOOK, down(context, &silent.name)).await {
                Ok(Some(Down::Restarting(_))) if !is_over => {}
                Ok(Some(cause)) => reasons.push(cause.text()),
                _ => {}
            }
        }
        reasons
    }

    async fn verified_snapshot(&self) -> Option<SnapshotSeen> {
        let path = self.snapshot.clone()?;
        let read = tokio::task::spawn_blocking(move || {
            let size = std::fs::metadata(&path).map_or(0, |file| file.len());
            SnapshotSeen { size, sum_matches: snapshot::verify(&path).is_ok(), age: snapshot::age(&path) }
        });
        read.await.ok()
    }

    fn told(&self, now: &Observation, verdict: &Verdict, msg: String) -> Outcome {
        let value = |value: Result<Value, serde_json::Error>| value.unwrap_or_default();
        Outcome { msg, ..Outcome::ok() }
            .with("cluster", self.cluster.name.as_str())
            .with("gate", value(serde_json::to_value(self.module.gate)))
            .with("observation", value(serde_json::to_value(now)))
            .with("findings", value(serde_json::to_value(&verdict.findings)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use etcdrun_engine::playbook::RolloutSettings;

    #[test]
    fn every_profile_of_a_rollout_is_one_of_a_gate() {
        let schema = schemars::schema_for!(RolloutSettings);
        let names = schema.pointer("/$defs/Profile").unwrap().to_string();
        let is_known = |profile: &Profile| names.contains(&serde_json::to_string(profile).unwrap());
        let known: Vec<Profile> = Profile::ALL.into_iter().filter(is_known).collect();
        // A rollout does not replace members: that is what `etcdrun member` does.
        assert_eq!(known, [Profile::Upgrade, Profile::Restart, Profile::Nospace, Profile::Certificate]);
        assert_eq!(names.matches("\"const\"").count() + names.matches("\"enum\"").count(), 3, "{names}");
    }
}
