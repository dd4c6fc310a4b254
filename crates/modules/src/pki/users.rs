//! `pki_users`: certificates of users, on the operator's disk.

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    ca::{authority, failed},
    cluster_args::{CLUSTER_TLS, Cluster, ClusterArgs},
};
use crate::{
    inventory::sections::TlsSection,
    model::{Effects, Outcome, Seconds},
};
use etcdrun_etcd::pki::{Authority, Keeping, Renewal, STRANGER, Store, Wish};

/// Renews the certificates of users in the state directory: those that expire soon, and those of a former CA.
///
/// A renewed certificate has a new key. The old certificate is valid until it expires, so holders of a copy have time to get
/// the new one: `etcdrun certs export`.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PkiUsers {
    /// The cluster whose CA signs, by its `name` and `tls`; default: the member's own.
    #[serde(default)]
    cluster: ClusterArgs,
    /// Renew them this long before they expire, if that is longer than in the cluster's `tls`.
    #[serde(default)]
    early_renewal: Option<Seconds>,
}

impl Module for PkiUsers {
    const NAME: &'static str = "pki_users";
    const CLUSTER: &'static [crate::task::ClusterKey] = CLUSTER_TLS;
    const EXAMPLE: &'static str = "\
- name: Renew user certificates
  pki_users:
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[ResultField { name: "renewed", doc: "Whose certificate is a new one." }];

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Engine(Box::new(Renew { cluster: self.cluster.known()?, early_renewal: self.early_renewal })))
    }
}

struct Renew {
    cluster: Cluster,
    early_renewal: Option<Seconds>,
}

impl EngineAction for Renew {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let (store, tls) = (self.cluster.store(context), &self.cluster.tls);
            let Some(authority) = authority(context, &self.cluster).await? else {
                return Ok(Outcome {
                    msg: "there is no CA yet, and no user has a certificate".into(),
                    ..Outcome::ok()
                });
            };
            let mut renewed = Vec::new();
            for user in store.users().map_err(failed)? {
                if self.renew(context, &authority, tls, &store, &user).await? && user != STRANGER {
                    renewed.push(user);
                }
            }
            let msg = match renewed.as_slice() {
                [] => String::new(),
                users => format!("new certificates: {}", users.join(", ")),
            };
            Ok(Outcome { changed: !renewed.is_empty(), msg, ..Outcome::ok() }.with("renewed", renewed))
        })
    }
}

impl Renew {
    /// Whether there was something to be done.
    async fn renew(
        &self,
        context: &ActionContext,
        authority: &Authority,
        tls: &TlsSection,
        store: &Store,
        user: &str,
    ) -> Result<bool, ActionError> {
        let keeping = Keeping { store, opener: context.opener.as_ref() };
        let wish =
            authority.client_wish(user, tls, &keeping, self.early_renewal.map(|early| early.0)).map_err(failed)?;
        if wish == Wish::Nothing || context.check_mode() {
            return Ok(wish != Wish::Nothing);
        }
        let client = authority.client(user, tls, &keeping, Renewal::Always).await.map_err(failed)?;
        context.masker.add(&client.key);
        Ok(client.is_new)
    }
}
