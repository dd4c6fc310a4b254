//! `etcd_auth`: users, roles, and authentication itself.

use async_trait::async_trait;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField,
    cluster::{Cluster, ClusterArgs, ClusterKey},
};
use crate::{
    etcd::{EtcdError, apply, plan},
    inventory::sections::AuthMethod,
    model::{Diff, Effects, Outcome},
    remote::Payload,
};

/// Makes users and roles of etcd as the inventory says, and switches authentication on.
///
/// Root and its role are always there. Roles and permissions that somebody else gave to users and roles of the inventory
/// are taken away; users and roles that the inventory does not know are left alone. Passwords are set when a user is made,
/// and not compared later. Root's credential is kept in the state folder, for other tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdAuth {
    #[serde(default)]
    cluster: ClusterArgs,
}

impl Module for EtcdAuth {
    const NAME: &'static str = "etcd_auth";
    const CLUSTER: &'static [ClusterKey] = ClusterKey::ALL;
    const EXAMPLE: &'static str = "\
- name: Authentication
  etcd_auth:
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "changes", doc: "What was missing." }];

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Engine(Box::new(Converge { cluster: self.cluster.known()? })))
    }
}

struct Converge {
    cluster: Cluster,
}

#[async_trait]
impl EngineAction for Converge {
    async fn run(&self, context: &ActionContext) -> Result<Outcome, ActionError> {
        let Cluster { name, auth, .. } = &self.cluster;
        if !auth.is_enabled() {
            return Ok(Outcome { msg: "authentication is not wanted".into(), ..Outcome::ok() });
        }
        let known = super::pki::ca::authority(context, &self.cluster).await?;
        if context.check_mode() && known.is_none() {
            return Ok(Outcome { msg: "would switch authentication on".into(), ..Outcome::changed() });
        }
        let (root, stranger) = (self.cluster.root(context).await?, self.cluster.stranger(context).await?);
        let root_password = match auth.method() {
            AuthMethod::Password => Some(self.cluster.root_password(context)?),
            AuthMethod::Certificate => None,
        };
        let roots = self.cluster.clients_with(context, &root)?;
        let strangers = self.cluster.clients_with(context, &stranger)?;
        let failed = |error: EtcdError| ActionError::Failed(error.to_string());
        let password = root_password.as_ref().map(|text| text.as_str());
        // Any member will do; one that does not answer is no reason to give up.
        let mut answer = Err(ActionError::Failed(format!("the cluster `{name}` has no members")));
        for index in self.order() {
            match plan(&roots[index], auth, password, &strangers[index]).await {
                Ok(plan) => answer = Ok((&roots[index], plan)),
                Err(error) if error.is_transient() => {
                    answer = Err(failed(error));
                    continue;
                }
                Err(error) => answer = Err(failed(error)),
            }
            break;
        }
        let (root, plan) = match answer {
            Err(ActionError::Failed(msg)) if context.check_mode() => {
                return Ok(Outcome { unknown: true, msg, ..Outcome::ok() });
            }
            answer => answer?,
        };
        let changes: Vec<String> = plan.changes.iter().map(ToString::to_string).collect();
        if !changes.is_empty() && !context.check_mode() {
            // The lock is on the hosts; etcd itself does not know of it.
            context.run(Payload::new("")).await?;
            apply(root, &plan).await.map_err(failed)?;
        }
        let after: String = changes.iter().map(|change| format!("{change}\n")).collect();
        let diff = (!changes.is_empty()).then(|| Diff {
            label: format!("{name} (authentication)"),
            before: String::new(),
            after,
        });
        Ok(Outcome { changed: !changes.is_empty(), diff: diff.into_iter().collect(), ..Outcome::ok() }
            .with("changes", changes))
    }
}

impl Converge {
    /// The member that was named for it, then the others.
    fn order(&self) -> Vec<usize> {
        let named = self.cluster.auth.bootstrap.as_ref();
        let mut order: Vec<usize> = (0..self.cluster.members.len()).collect();
        order.sort_by_key(|index| named.is_none_or(|named| self.cluster.members[*index].name != named.0));
        order
    }
}
