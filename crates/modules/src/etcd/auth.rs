//! `etcd_auth`: users, roles, and authentication itself.

use schemars::JsonSchema;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER},
};
use crate::{
    inventory::sections::AuthMethod,
    model::{Diff, Effects, Outcome},
    remote::Payload,
};
use etcdrun_etcd::etcd::{EtcdError, RootPassword, apply, plan};

/// Creates the users and roles of the inventory in etcd, and enables authentication.
///
/// Root and its role always exist. Users and roles of the inventory have exactly the roles and permissions of the inventory;
/// those with `state: absent` are removed, and others are not changed. Passwords that differ from the inventory
/// are set. Root's credential is stored in the state directory, for other tools.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EtcdAuth {
    #[serde(default)]
    cluster: ClusterArgs,
    /// Generate a new password for root, if its password was generated.
    #[serde(default)]
    rotate_root: bool,
}

impl Module for EtcdAuth {
    const NAME: &'static str = "etcd_auth";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Configure authentication
  etcd_auth:
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "changes", doc: "What was missing." }];

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        if self.rotate_root && cluster.auth.method() == AuthMethod::Certificate {
            return Err(ModuleError::new(format!("root of `{}` has a certificate and no password", cluster.name))
                .help("to renew its certificate, run `etcdrun certs renew`"));
        }
        if self.rotate_root && cluster.auth.root_password.is_some() {
            return Err(ModuleError::new(format!("root's password of `{}` is in the inventory", cluster.name))
                .help("change `auth.root_password` there, and play site.yaml"));
        }
        Ok(Action::Engine(Box::new(Converge { cluster, rotate_root: self.rotate_root })))
    }
}

type Password = Zeroizing<String>;

struct Converge {
    cluster: Cluster,
    rotate_root: bool,
}

impl EngineAction for Converge {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let Cluster { name, auth, .. } = &self.cluster;
            if !auth.is_enabled() {
                return Ok(Outcome { msg: "authentication is not wanted".into(), ..Outcome::ok() });
            }
            let known = super::pki::ca::authority(context, &self.cluster).await?;
            if context.check_mode() && known.is_none() {
                return Ok(Outcome { msg: "would switch authentication on".into(), ..Outcome::changed() });
            }
            let (root, stranger) = (self.cluster.root(context).await?, self.cluster.stranger(context).await?);
            let passwords = self.root_passwords(context).await?;
            let roots = self.cluster.clients_with(context, &root)?;
            let strangers = self.cluster.clients_with(context, &stranger)?;
            let failed = |error: EtcdError| ActionError::Failed(error.to_string());
            let password = passwords.as_ref().map(|(has, wanted)| RootPassword { has, wanted });
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
            if let Some((_, wanted)) = passwords.filter(|(has, wanted)| has != wanted) {
                self.cluster.keep_root_password(context, &wanted)?;
            }
            let lines = |lines: &[String]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();
            let diff = (!changes.is_empty()).then(|| Diff {
                label: format!("{name} (authentication)"),
                before: lines(&plan.before),
                after: lines(&plan.after),
            });
            Ok(Outcome { changed: !changes.is_empty(), diff: diff.into_iter().collect(), ..Outcome::ok() }
                .with("changes", changes))
        })
    }
}

impl Converge {
    /// The password that root has, and the one that it is to have.
    async fn root_passwords(&self, context: &ActionContext) -> Result<Option<(Password, Password)>, ActionError> {
        let auth = &self.cluster.auth;
        if auth.method() == AuthMethod::Certificate {
            return Ok(None);
        }
        let has = self.cluster.root_password(context).await?;
        let wanted = match (&auth.root_password, self.rotate_root) {
            (Some(given), _) => Password::new(given.clone()),
            (None, true) => self.cluster.next_root_password(context)?,
            (None, false) => has.clone(),
        };
        Ok(Some((has, wanted)))
    }

    /// The member that was named for it, then the others.
    fn order(&self) -> Vec<usize> {
        let named = self.cluster.auth.bootstrap.as_ref();
        let mut order: Vec<usize> = (0..self.cluster.members.len()).collect();
        order.sort_by_key(|index| named.is_none_or(|named| self.cluster.members[*index].name != named.0));
        order
    }
}
