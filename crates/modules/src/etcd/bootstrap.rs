//! `etcd_bootstrap`: whether a cluster is to be begun, or exists.

use std::fmt::Write;

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::Deserialize;

use super::catalogue::without_release;
use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{CLUSTER_MEMBERS, Cluster, ClusterArgs, Member},
};
use crate::{
    inventory::sections::EtcdSection,
    inventory::{Host, Inventory},
    model::{Effects, Outcome, Value},
    remote::Payload,
    source::{Diagnostic, Vars},
};
use etcdrun_base::mutant::{is_off, repair};
use etcdrun_etcd::etcd::{ClusterRecord, Phase, settings};

/// Decides whether the members bootstrap a new cluster, or continue an existing one.
///
/// A new one is bootstrapped only if the data directory of every member was read and is empty, and there is no record of a
/// cluster of that name. An unreachable member does not count as empty. Anything else is not changed, or
/// refused with the fix.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdBootstrap {
    /// The cluster, by its `name` and `members`; default: the member's own.
    #[serde(default)]
    cluster: ClusterArgs,
    /// The cluster's section `etcd`.
    #[serde(default)]
    etcd: EtcdSection,
    /// The data directory.
    data_dir: String,
    /// Files that a member needs before it can start: no member starts before all members have them.
    #[serde(default)]
    requires: Vec<String>,
    /// The peer port.
    #[serde(default = "super::peer_port")]
    peer_port: u16,
}

impl Module for EtcdBootstrap {
    const NAME: &'static str = "etcd_bootstrap";
    const CLUSTER: &'static [crate::task::ClusterKey] = CLUSTER_MEMBERS;
    const EXAMPLE: &'static str = "\
- name: Decide whether the cluster is new
  etcd_bootstrap:
    data_dir: /var/lib/etcd/data
  once_per: cluster
  register: bootstrap
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "starting", doc: "The members that start as members of a new cluster." },
        ResultField { name: "environment", doc: "The initial settings of such a member." },
    ];

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn missing(inventory: &Inventory, host: &Host, extra_vars: &Vars) -> Option<Diagnostic> {
        if extra_vars.contains_key("etcd_version") { None } else { without_release(inventory, host) }
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Decide { cluster, module: self })))
    }
}

struct Decide {
    module: EtcdBootstrap,
    cluster: Cluster,
}

fn found(outcome: &Outcome) -> Found {
    match outcome.data.get("found").and_then(Value::as_str) {
        Some("empty") => Found::Empty,
        Some("data") => Found::Data,
        Some("remains") => Found::Remains,
        _ => Found::Unread("it did not report it".into()),
    }
}

/// What was found in a member's data folder.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Found {
    Empty,
    /// Files, but no log.
    Remains,
    Data,
    /// Nobody knows.
    Unread(String),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Decision {
    /// All of them begin it.
    Begin,
    /// These were not started when it was begun.
    GoOn(Vec<String>),
    Exists,
    Refuse(String),
}

impl EngineAction for Decide {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let failed = |error: crate::state::StateError| ActionError::Failed(error.to_string());
            let cluster = &self.cluster.name;
            let record = ClusterRecord::load(&context.state, cluster).map_err(failed)?;
            let looks = join_all(self.cluster.members.iter().map(|member| self.look(context, member))).await;
            let missing = self
                .cluster
                .members
                .iter()
                .zip(&looks)
                .find_map(|(member, (_, missing))| Some((&member.name, missing.clone()?)));
            let found = looks.into_iter().map(|(found, _)| found);
            let names = self.cluster.names();
            let found: Vec<(String, Found)> = names.iter().cloned().zip(found).collect();
            let decision = decide(cluster, record.as_ref(), &found);
            if let (Decision::Begin | Decision::GoOn(_), Some((member, file)), false) =
                (&decision, missing, context.check_mode())
            {
                let why = format!(
                    "{member} is not ready to start: it has no {file}; a new cluster starts with all of its members, or not at all"
                );
                return Err(ActionError::Failed(why));
            }
            if matches!(decision, Decision::Begin | Decision::GoOn(_)) {
                check_discovery(&self.module.etcd)?;
                self.check_reach(context).await?;
            }
            let (starting, record) = match decision {
                Decision::Refuse(why) => return Err(ActionError::Failed(why)),
                Decision::Exists => (Vec::new(), None),
                Decision::GoOn(names) => (names, record),
                Decision::Begin => {
                    let token = self.module.etcd.token.clone();
                    let token = token.unwrap_or_else(|| format!("{cluster}-{:016x}", rand::random::<u64>()));
                    let record =
                        ClusterRecord { phase: Phase::Forming, token, members: names.clone(), cluster_id: None };
                    if !context.check_mode() {
                        record.keep(&context.state, cluster).map_err(failed)?;
                    }
                    (names, Some(record))
                }
            };
            let environment = record.map(|record| self.environment(&record.token)).unwrap_or_default();
            let msg = match starting.as_slice() {
                [] => "the cluster exists".to_owned(),
                names => format!("a new cluster of {}", names.join(", ")),
            };
            let changed = !starting.is_empty();
            Ok(Outcome { msg, changed, ..Outcome::ok() }.with("starting", starting).with("environment", environment))
        })
    }
}

impl Decide {
    async fn look(&self, context: &ActionContext, member: &Member) -> (Found, Option<String>) {
        let Some(session) = context.reach.session(&member.name, &context.session) else {
            return (Found::Unread("it is not in the inventory".into()), None);
        };
        let payload = Payload::new(include_str!("bootstrap.sh")).value("data_dir", &self.module.data_dir);
        let payload = self.module.requires.iter().fold(payload, Payload::arg);
        match session.run_one(payload, false).await {
            Ok(outcome) if outcome.failed => (Found::Unread(outcome.msg), None),
            Ok(outcome) => (found(&outcome), outcome.data.get("missing").and_then(Value::as_str).map(str::to_owned)),
            Err(error) => (Found::Unread(error.to_string()), None),
        }
    }

    /// Every member must be able to connect to every other before any of them starts.
    async fn check_reach(&self, context: &ActionContext) -> Result<(), ActionError> {
        let asking = self.cluster.members.iter().map(|member| async move {
            let session = context.reach.session(&member.name, &context.session)?;
            let others = self.cluster.members.iter().filter(|other| other.name != member.name);
            let payload = Payload::new(include_str!("reach.sh")).value("port", self.module.peer_port.to_string());
            let payload = others.fold(payload, |payload, other| payload.arg(format!("{} {}", other.name, other.ip)));
            // One that does not answer was told before.
            let outcome = session.run_one(payload, false).await.ok()?;
            let silent = outcome.data.get("silent").and_then(Value::as_str).unwrap_or_default().to_owned();
            (!silent.is_empty()).then_some((member.name.as_str(), silent))
        });
        match join_all(asking).await.into_iter().flatten().next() {
            None => Ok(()),
            Some((member, silent)) => Err(ActionError::Failed(format!(
                "{member} cannot connect to {silent} at port {}: members must reach each other there before a cluster can start; check routes and firewalls between them",
                self.module.peer_port
            ))),
        }
    }

    /// For the first start alone; the settings that stay say `existing`.
    fn environment(&self, token: &str) -> String {
        let mut text = String::from("ETCD_INITIAL_CLUSTER_STATE=new\n");
        let discovery = &self.module.etcd.discovery;
        // Writing to a string cannot fail.
        let _ = match (&discovery.url, &discovery.dns_srv) {
            (Some(url), _) => writeln!(text, "ETCD_DISCOVERY={url}"),
            (None, Some(domain)) => writeln!(text, "ETCD_DISCOVERY_SRV={domain}\nETCD_INITIAL_CLUSTER_TOKEN={token}"),
            (None, None) => {
                let port = self.module.peer_port;
                let peers: Vec<String> = self.cluster.members.iter().map(|member| member.peer(port)).collect();
                writeln!(text, "ETCD_INITIAL_CLUSTER_TOKEN={token}\nETCD_INITIAL_CLUSTER={}", peers.join(","))
            }
        };
        text
    }
}

/// Where the version was a template, nobody has looked before. A server that does not know the setting ignores it, and each member
/// would begin a cluster of its own.
fn check_discovery(etcd: &EtcdSection) -> Result<(), ActionError> {
    match (&etcd.discovery.url, etcd.version) {
        (Some(_), Some(version)) if !settings::has_discovery_url(version) => Err(ActionError::Failed(format!(
            "etcd {version} cannot form a cluster by `discovery.url`: 3.6 was the last version to have it; remove it from the inventory, or use `discovery: {{dns_srv: DOMAIN}}`"
        ))),
        _ => Ok(()),
    }
}

fn decide(cluster: &str, record: Option<&ClusterRecord>, found: &[(String, Found)]) -> Decision {
    let named = |wanted: &dyn Fn(&Found) -> bool| -> Vec<String> {
        found.iter().filter(|(_, found)| wanted(found)).map(|(name, _)| name.clone()).collect()
    };
    let no_log = named(&|found| matches!(found, Found::Empty | Found::Remains));
    let all_empty = found.iter().all(|(_, found)| *found == Found::Empty);
    let data = named(&|found| *found == Found::Data);
    let unread = found.iter().find_map(|(name, found)| match found {
        Found::Unread(why) => Some((name, why)),
        _ => None,
    });
    let is_forming = record.is_some_and(|record| record.phase == Phase::Forming && same_names(&record.members, found));
    match (record.map(|record| record.phase), unread) {
        (Some(Phase::Formed), _) if no_log.is_empty() => Decision::Exists,
        (Some(Phase::Formed), _) => Decision::Refuse(lost(cluster, record, &no_log)),
        (_, Some((name, why))) if !is_off(repair::UNREAD) && (data.is_empty() || !no_log.is_empty()) => {
            Decision::Refuse(format!(
                "cannot tell whether {name} has data ({why}), so it is unknown whether the cluster `{cluster}` is new"
            ))
        }
        (_, _) if no_log.is_empty() => Decision::Exists,
        // Only a restore knows the id before the cluster is there. What it has not reached must not begin with nothing.
        _ if !is_off(repair::HALF_RESTORED)
            && record.is_some_and(|record| record.phase == Phase::Forming && record.cluster_id.is_some()) =>
        {
            Decision::Refuse(format!(
                "the cluster `{cluster}` is being restored, and {} {} not got its data yet: continue that run (`etcdrun resume`), or restore again",
                no_log.join(", "),
                has(no_log.len()),
            ))
        }
        _ if is_forming => Decision::GoOn(no_log),
        _ if all_empty => Decision::Begin,
        _ if data.is_empty() => Decision::Refuse(format!(
            "there are files of etcd on {}, but no log, and there is no record of a cluster `{cluster}` here: inspect them, and remove them if they are not needed",
            named(&|found| *found == Found::Remains).join(", "),
        )),
        _ => Decision::Refuse(format!(
            "{} {} no data, but {} {}: the cluster `{cluster}` exists, and a member that lost its data must not bootstrap another; remove it from the cluster and add it again as a new member",
            no_log.join(", "),
            has(no_log.len()),
            data.join(", "),
            has(data.len()),
        )),
    }
}

fn has(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}

fn lost(cluster: &str, record: Option<&ClusterRecord>, empty: &[String]) -> String {
    let id = record.and_then(|record| record.cluster_id.as_deref()).unwrap_or("unknown");
    format!(
        "{} {} no data, but the cluster `{cluster}` was bootstrapped (its id is {id}): a member that lost its data must not bootstrap another; remove it from the cluster and add it again as a new member, or restore a snapshot if all of them lost theirs",
        empty.join(", "),
        has(empty.len()),
    )
}

fn same_names(members: &[String], found: &[(String, Found)]) -> bool {
    members.len() == found.len() && found.iter().all(|(name, _)| members.contains(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(phase: Phase) -> ClusterRecord {
        let members = ["a", "b", "c"].map(str::to_owned).to_vec();
        ClusterRecord { phase, token: "t".into(), members, cluster_id: Some("1f".into()) }
    }

    /// `e` is empty, `r` has remains, `d` has data, `u` was not read.
    fn decided(record: Option<&ClusterRecord>, letters: &str) -> Decision {
        let found = |letter| match letter {
            'e' => Found::Empty,
            'd' => Found::Data,
            'r' => Found::Remains,
            _ => Found::Unread("no route".into()),
        };
        let found: Vec<_> = ["a", "b", "c"].into_iter().map(str::to_owned).zip(letters.chars().map(found)).collect();
        decide("prod", record, &found)
    }

    #[test]
    fn a_cluster_is_new_only_if_all_data_folders_were_read_and_are_empty() {
        assert_eq!(decided(None, "eee"), Decision::Begin);
        assert_eq!(decided(None, "ddd"), Decision::Exists);
        for refused in ["eeu", "uuu", "eed", "dde", "deu", "eer", "ddr", "rrr"] {
            assert!(matches!(decided(None, refused), Decision::Refuse(_)), "{refused}");
        }
        assert_eq!(decided(None, "ddu"), Decision::Exists);
    }

    #[test]
    fn members_that_would_not_find_each_other_are_not_started() {
        let section = |version: &str, discovery: &str| -> EtcdSection {
            serde_json::from_value(serde_json::json!({ "version": version, "discovery": { discovery: "example.org" } }))
                .unwrap()
        };
        assert!(check_discovery(&section("3.6.15", "url")).is_ok());
        assert!(check_discovery(&section("3.7.2", "dns_srv")).is_ok());
        let refused = check_discovery(&section("3.7.2", "url")).unwrap_err().to_string();
        assert!(refused.contains("3.6 was the last") && refused.contains("dns_srv"), "{refused}");
    }

    #[test]
    fn a_cluster_that_was_formed_is_never_formed_again() {
        let formed = record(Phase::Formed);
        assert_eq!(decided(Some(&formed), "ddd"), Decision::Exists);
        assert_eq!(decided(Some(&formed), "ddu"), Decision::Exists);
        for refused in ["eee", "dde", "uue", "ddr"] {
            assert!(matches!(decided(Some(&formed), refused), Decision::Refuse(_)), "{refused}");
        }
    }

    #[test]
    fn one_that_was_being_formed_goes_on() {
        let forming = ClusterRecord { cluster_id: None, ..record(Phase::Forming) };
        let all = ["a", "b", "c"].map(str::to_owned).to_vec();
        assert_eq!(decided(Some(&forming), "eee"), Decision::GoOn(all));
        assert_eq!(decided(Some(&forming), "der"), Decision::GoOn(vec!["b".into(), "c".into()]));
        assert_eq!(decided(Some(&forming), "dee"), Decision::GoOn(vec!["b".into(), "c".into()]));
        assert_eq!(decided(Some(&forming), "ddd"), Decision::Exists);
        assert!(matches!(decided(Some(&forming), "deu"), Decision::Refuse(_)));
        let restored = ClusterRecord { cluster_id: Some("1".into()), ..forming.clone() };
        for refused in ["eee", "dde"] {
            assert!(matches!(decided(Some(&restored), refused), Decision::Refuse(_)), "{refused}");
        }
        let others = ClusterRecord { members: vec!["a".into(), "b".into()], ..forming };
        assert!(matches!(decided(Some(&others), "dee"), Decision::Refuse(_)));
    }
}
