//! `etcd_addresses`: members that found each other by names are listed in etcd at the addresses of the inventory.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER, etcd_failed, fence, leader, led},
};
use crate::model::{Diff, Effects, Outcome};
use etcdrun_etcd::etcd::observe::{Listed, Observation};

/// Registers the addresses of the inventory in etcd for members that found each other by the records of a domain.
///
/// etcd lists such members at names of that domain. What comes later, a new member or a rollout, compares the list with the
/// inventory. A member that is listed at anything else, or at another port, is left alone: it gets its address in its turn.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdAddresses {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The domain, as `discovery.dns_srv` has it.
    domain: String,
}

impl Module for EtcdAddresses {
    const NAME: &'static str = "etcd_addresses";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Register the addresses of the members
  etcd_addresses:
    domain: prod.example.org
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "changes", doc: "What was listed at a name." }];

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Engine(Box::new(Register { cluster: self.cluster.known()?, domain: self.domain })))
    }
}

struct Register {
    cluster: Cluster,
    domain: String,
}

/// A voter, the URL that etcd lists it at, and the one of the inventory.
struct Renamed {
    id: u64,
    member: String,
    listed: String,
    wanted: String,
}

impl EngineAction for Register {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let clients = match self.cluster.clients(context).await {
                // Without a CA there is no cluster yet.
                Err(ActionError::Failed(msg)) if context.check_mode() => {
                    return Ok(Outcome { unknown: true, msg, ..Outcome::ok() });
                }
                clients => clients?,
            };
            let now = led(&clients).await;
            let renamed = self.renamed(&now);
            if !context.check_mode() {
                for Renamed { id, wanted, .. } in &renamed {
                    let leader = leader(&clients, &now)?;
                    fence(context).await?;
                    let mut client = leader.client().await.map_err(etcd_failed)?;
                    leader.bounded(client.member_update(*id, [wanted.clone()])).await.map_err(etcd_failed)?;
                }
            }
            let changes: Vec<String> = renamed.iter().map(|it| format!("{} at {}", it.member, it.wanted)).collect();
            let lines = |url: fn(&Renamed) -> &str| {
                renamed.iter().map(|it| format!("{} at {}\n", it.member, url(it))).collect::<String>()
            };
            let diff = (!renamed.is_empty()).then(|| Diff {
                label: format!("{} (peer addresses)", self.cluster.name),
                before: lines(|it| &it.listed),
                after: lines(|it| &it.wanted),
            });
            Ok(Outcome { changed: !changes.is_empty(), diff: diff.into_iter().collect(), ..Outcome::ok() }
                .with("changes", changes))
        })
    }
}

impl Register {
    fn renamed(&self, now: &Observation) -> Vec<Renamed> {
        let peers = self.cluster.peer_urls();
        let renamed = |(member, wanted): (String, String)| {
            let listed = now.list().iter().find(|it| it.name == member)?;
            let url = by_name(listed, &wanted, &self.domain)?;
            Some(Renamed { id: listed.id, member, listed: url.to_owned(), wanted })
        };
        peers.into_iter().filter_map(renamed).collect()
    }
}

/// The URL of a voter, if it differs from the wanted one in nothing but a name of the domain in place of an address.
fn by_name<'a>(listed: &'a Listed, wanted: &str, domain: &str) -> Option<&'a str> {
    let parts = |url: &str| {
        Some(url.split_once("://")?.1.rsplit_once(':')?).map(|(host, port)| (host.to_owned(), port.to_owned()))
    };
    // Before 3.5.31 and 3.6.12 an update makes a voter of a learner, ready or not.
    let [url] = listed.peer_urls.as_slice() else { return None };
    let ((host, port), (_, wanted_port)) = (parts(url)?, parts(wanted)?);
    let is_of_domain = host.strip_suffix(domain.trim_end_matches('.')).is_some_and(|rest| rest.ends_with('.'));
    (!listed.is_learner && is_of_domain && port == wanted_port).then_some(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_of_the_domain_is_replaced() {
        let found = |url: &str, is_learner| {
            let listed = Listed { id: 1, name: "a".into(), peer_urls: vec![url.into()], is_learner };
            by_name(&listed, "https://[fd00::1]:2380", "example.org").is_some()
        };
        assert!(found("https://a.example.org:2380", false));
        assert!(!found("https://a.example.org:12380", false), "its port changes in its turn");
        assert!(!found("https://10.0.0.1:2380", false), "so does its address");
        assert!(!found("https://a.notexample.org:2380", false));
        assert!(!found("https://a.example.org:2380", true));
    }
}
