//! `etcd_path`: through which versions a cluster goes to another one.

use std::time::Duration;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, BuildContext, EngineAction, Module, ModuleError, ResultField, Running, Traits,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
};
use crate::{
    inventory::sections::{EtcdClient, Release},
    model::RolloutPart,
    model::{Effects, Outcome, Value, Version},
};
use etcdrun_etcd::etcd::{
    observe::observe,
    path::{Hop, before, hops_from, without_way_back},
    rules::Consent,
};

/// Finds the versions on the path from the current to the wanted version of a cluster.
///
/// One minor version at a time, each to a release of `etcd_releases`. If there is no path, it fails with the reason.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdPath {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The wanted version.
    version: Version,
    /// The releases: `etcd_releases`.
    #[serde(default)]
    releases: IndexMap<String, Release>,
    /// Down instead of up.
    #[serde(default)]
    down: bool,
    /// Upgrade from 3.4 to 3.5 with authentication enabled.
    #[serde(default)]
    allow_auth_hop: bool,
    /// The cluster's `clients`.
    #[serde(default)]
    clients: Vec<EtcdClient>,
    /// Whether the old version may be needed for a rollback, so that `etcd_releases` must have it too.
    #[serde(default)]
    rollback: bool,
}

impl Module for EtcdPath {
    const NAME: &'static str = "etcd_path";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const TRAITS: Traits = Traits { rollout: Some(RolloutPart::Path), ..Traits::NONE };
    const EXAMPLE: &'static str = "\
- name: Find the upgrade path
  etcd_path:
    version: \"{{ cluster.etcd.version }}\"
    releases: \"{{ etcd_releases }}\"
  once_per: cluster
  register: path
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "hops", doc: "The versions on the path; the last one is the wanted one." },
        ResultField { name: "cluster", doc: "The cluster's name." },
        ResultField { name: "from", doc: "For each of them, the version that comes before it." },
        ResultField { name: "before", doc: "For each of them, what each member runs before it." },
    ];

    fn effects(&self) -> Effects {
        Effects::read_only()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Look { cluster, module: self })))
    }
}

struct Look {
    module: EtcdPath,
    cluster: Cluster,
}

const LIMIT: Duration = Duration::from_secs(10);

impl EngineAction for Look {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let EtcdPath { version, releases, .. } = &self.module;
            let clients = self.cluster.clients(context).await?;
            let seen = observe(&clients, LIMIT).await;
            if let Some(silent) = seen.members.iter().find(|member| member.answer.is_err()) {
                let why = silent.trouble().unwrap_or_default();
                return Ok(refused(format!("{} does not tell its version: {why}", silent.name)));
            }
            let catalogue: Vec<Version> = releases.keys().filter_map(|name| name.parse().ok()).collect();
            let consent = Consent { auth_hop: self.module.allow_auth_hop, ..Consent::default() };
            let clients = if self.cluster.auth.is_enabled() { self.module.clients.as_slice() } else { &[] };
            let hops = match hops_from(&seen, *version, &catalogue, consent, clients) {
                Ok(hops) => hops,
                Err(error) => return Ok(refused(error.told(&self.cluster.name))),
            };
            let goes_down = |hop: &Hop| hop.to.series() < hop.from.series();
            if let Some(hop) = hops.iter().find(|hop| goes_down(hop) != self.module.down) {
                let msg = match self.module.down {
                    true => format!("{} is not below {}; run `etcdrun playbook upgrade.yaml`", hop.to, hop.from),
                    false => format!("{} is below {}; run `etcdrun playbook downgrade.yaml`", hop.to, hop.from),
                };
                return Ok(refused(msg));
            }
            let running: Vec<(&str, Version)> = seen.views().map(|(name, view)| (name, view.version)).collect();
            let before = before(&running, &hops);
            if self.module.rollback
                && let Some((member, version)) = without_way_back(&before, &catalogue)
            {
                return Ok(refused(format!(
                    "{member} runs {version}, which a rollback would put back, and `etcd_releases` does not have it; add it, or leave \
                 the member where it fails (`on_failure: halt`)"
                )));
            }
            let words: Vec<String> = hops.iter().map(told).collect();
            let msg = if words.is_empty() { format!("all run {version}") } else { words.join(", ") };
            let from: serde_json::Map<String, Value> =
                hops.iter().map(|hop| (hop.to.to_string(), hop.from.to_string().into())).collect();
            let hops: Vec<String> = hops.iter().map(|hop| hop.to.to_string()).collect();
            let outcome = Outcome { msg, ..Outcome::ok() }.with("cluster", self.cluster.name.as_str());
            let before = serde_json::to_value(&before).unwrap_or_default();
            Ok(outcome.with("hops", hops).with("from", Value::Object(from)).with("before", before))
        })
    }
}

/// A hop as people read it, with what they might want to know of it.
fn told(hop: &Hop) -> String {
    let note = hop.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
    format!("{} → {}{note}", hop.from, hop.to)
}

fn refused(msg: String) -> Outcome {
    Outcome { refused: true, ..Outcome::failed(msg) }
}
