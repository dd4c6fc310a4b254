//! `etcd_unwritten`: whether a last backup is still the last word.

use std::{sync::LazyLock, time::Duration};

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
};
use crate::model::{Effects, Outcome};
use etcdrun_base::mutant::{is_off, repair};
use etcdrun_etcd::etcd::observe::{Observation, observe};

const LOOK: Duration = Duration::from_secs(10);

/// Fails if a cluster was written to since a backup that an earlier process has taken.
///
/// A resumed run may continue days after its backup. Within one process it is only seconds, in which clients may write:
/// either you have stopped them, or you do not need these writes. Only members that answer count.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdUnwritten {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The revision that the backup has.
    #[serde(default)]
    revision: i64,
    /// When it was taken.
    at: String,
    /// The process that took it: `by` of `etcd_backup`.
    by: String,
    /// The ID of its cluster, in hexadecimal.
    cluster_id: String,
}

/// Tells this process from others.
pub(super) static PROCESS: LazyLock<String> = LazyLock::new(|| format!("{:016x}", rand::random::<u64>()));

impl Module for EtcdUnwritten {
    const NAME: &'static str = "etcd_unwritten";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Check for writes since the last backup
  etcd_unwritten:
    revision: \"{{ last_backup.revision }}\"
    at: \"{{ last_backup.at }}\"
    by: \"{{ last_backup.by }}\"
    cluster_id: \"{{ last_backup.cluster_id }}\"
  once_per: cluster
";
    const RESULT: &'static [ResultField] =
        &[ResultField { name: "revision", doc: "The highest revision that a member has, if one answers." }];

    fn effects(&self) -> Effects {
        Effects::read_only().perishable()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let at = self.at.parse::<Timestamp>();
        let at = at.map_err(|error| ModuleError::new(format!("`at: {}` is not a timestamp: {error}", self.at)))?;
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Compare {
            cluster,
            revision: self.revision,
            at,
            is_ours: self.by == *PROCESS,
            id: self.cluster_id,
        })))
    }
}

struct Compare {
    cluster: Cluster,
    revision: i64,
    at: Timestamp,
    is_ours: bool,
    id: String,
}

impl EngineAction for Compare {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let clients = self.cluster.clients(context).await?;
            let now = observe(&clients, LOOK).await;
            match self.problem(&now) {
                Some(problem) => Err(ActionError::Refused(problem)),
                None => {
                    let outcome = Outcome::ok();
                    Ok(match now.views().map(|(_, view)| view.revision).max() {
                        Some(revision) => outcome.with("revision", revision),
                        None => outcome,
                    })
                }
            }
        })
    }
}

impl Compare {
    fn problem(&self, now: &Observation) -> Option<String> {
        let cluster = &self.cluster.name;
        let anew = format!(
            "To start again with another backup, run `etcdrun destroy {cluster}`; if the cluster no longer serves, add --no-backup"
        );
        let is_other = |id: u64| format!("{id:x}") != self.id && format!("{id:016x}") != self.id;
        if let Some((name, view)) = now.views().find(|(_, view)| is_other(view.cluster_id)) {
            return Some(format!(
                "{name} belongs to another cluster (id {:x}) than the one of the last backup (id {}); nothing was removed. {anew}",
                view.cluster_id, self.id
            ));
        }
        let (name, view) = now.views().max_by_key(|(_, view)| view.revision)?;
        (!self.is_ours && view.revision > self.revision && !is_off(repair::UNWRITTEN)).then(|| {
            format!(
                "`{cluster}` was written to since its last backup: that has revision {} and is of {}, and {name} has revision {} now; nothing more was removed. {anew}",
                self.revision,
                self.at.strftime("%F %TZ"),
                view.revision
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::etcd::pulse::testing::view;
    use etcdrun_etcd::etcd::observe::{Seen, View};

    fn problem(is_ours: bool, revision: i64, cluster_id: u64) -> Option<String> {
        let args = json!({ "name": "prod", "members": [{ "name": "a", "ip": "192.0.2.1" }] });
        let args: ClusterArgs = serde_json::from_value(args).unwrap();
        let at = "2026-11-15T12:00:00Z".parse().unwrap();
        let compare = Compare { cluster: args.known().unwrap(), revision: 7, at, is_ours, id: "1f".to_owned() };
        let view = View { revision, cluster_id, ..view(Ok(Vec::new())) };
        compare.problem(&Observation { members: vec![Seen { name: "a".to_owned(), answer: Ok(view) }], auth: None })
    }

    #[test]
    fn what_was_written_since_the_backup_of_another_process_is_not_destroyed() {
        assert_eq!(problem(false, 7, 0x1f), None);
        assert!(problem(false, 8, 0x1f).unwrap().contains("was written to since its last backup"));
        assert_eq!(problem(true, 8, 0x1f), None, "seconds after its own backup");
        assert!(problem(true, 7, 0x2f).unwrap().contains("belongs to another cluster"));
    }
}
