//! `pki_ca`: the authority of a cluster.

use std::{
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    cluster_args::{CLUSTER_TLS, Cluster, ClusterArgs},
};
use crate::{
    inventory::sections::TlsSection,
    model::{Effects, Outcome},
};
use etcdrun_etcd::{
    etcd::ClusterRecord,
    pki::{Authority, Certificate, Keeping, PkiError, Store},
};

/// Creates the CA of a cluster, unless there is one.
///
/// Its certificate and its key are stored in the state directory, the key encrypted with age: to `ca.recipients`, to those
/// of the inventory's directory, or to your own identity, which is created if you have none. The key is never on a host. With
/// `ca.certificate` you provide the CA, and it is only checked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PkiCa {
    /// The cluster, by its `name` and `tls`; default: the member's own.
    #[serde(default)]
    cluster: ClusterArgs,
}

impl Module for PkiCa {
    const NAME: &'static str = "pki_ca";
    const CLUSTER: &'static [crate::task::ClusterKey] = CLUSTER_TLS;
    const EXAMPLE: &'static str = "\
- name: Create the cluster CA
  pki_ca:
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "certificate", doc: "The file with the CA certificate, on the operator's workstation." },
        ResultField { name: "fingerprint", doc: "The SHA-256 sum of the certificate." },
        ResultField { name: "not_after", doc: "When it expires." },
    ];

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        Ok(Action::Engine(Box::new(Make { cluster: self.cluster.known()? })))
    }
}

struct Make {
    cluster: Cluster,
}

impl EngineAction for Make {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let (store, tls) = (self.cluster.store(context), &self.cluster.tls);
            let there = authority(context, &self.cluster).await?;
            let (authority, is_new) = match there {
                Some(authority) => (authority, false),
                None if context.check_mode() => {
                    return Ok(Outcome { msg: "would create a CA".into(), ..Outcome::changed() });
                }
                None => (make(context, &self.cluster).await?, true),
            };
            if !context.check_mode() {
                store.keep_certificate(&authority.trusted).map_err(failed)?;
                match store.rotation().map_err(failed)? {
                    Some(rotation) if rotation.is_over(tls) => drop(rotation.end(tls, &store).map_err(failed)?),
                    _ => {}
                }
            }
            Ok(Outcome { changed: is_new, ..Outcome::ok() }
                .with("certificate", store.certificate_path().display().to_string())
                .with("fingerprint", authority.certificate.fingerprint())
                .with("not_after", authority.certificate.not_after.to_string()))
        })
    }
}

/// Members that run trust the authority that they know. Another one has to be made known to them first.
fn is_trusted(state: &Path, cluster: &str, authority: &Authority) -> Result<(), ActionError> {
    let Some(known) = Store::new(state, cluster).trusted().map_err(failed)? else { return Ok(()) };
    let known = Certificate::parse_all(&known).map_err(failed)?;
    let is_known = known.iter().any(|known| known.public_key == authority.certificate.public_key);
    if is_known || matches!(ClusterRecord::load(state, cluster), Ok(None)) {
        return Ok(());
    }
    Err(failed(
        PkiError::new(format!("the members of `{cluster}` trust another CA than that of the inventory"))
            .help("put back the former one, name the other `ca.next`, and let `etcdrun certs rotate-ca` replace it"),
    ))
}

pub(crate) fn failed(error: PkiError) -> ActionError {
    ActionError::Failed(match error.help {
        Some(help) => format!("{}; {help}", error.message),
        None => error.message,
    })
}

/// The authority of a cluster once it was opened: its key is decrypted once, however many members there are.
#[derive(Default)]
struct Opened(Mutex<Option<Arc<Authority>>>);

/// The authority of a cluster, if there is one. What it signs must be worth something to the members.
pub(crate) async fn authority(
    context: &ActionContext,
    cluster: &Cluster,
) -> Result<Option<Arc<Authority>>, ActionError> {
    let known = opened(context, &cluster.name).0.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if known.is_some() {
        return Ok(known);
    }
    let there = on_a_thread(context, cluster, |_, tls, keeping| Authority::open(tls, keeping)).await?;
    if let Some(authority) = &there {
        is_trusted(&context.state, &cluster.name, authority)?;
    }
    Ok(there.map(|authority| remember(context, &cluster.name, authority)))
}

async fn make(context: &ActionContext, cluster: &Cluster) -> Result<Arc<Authority>, ActionError> {
    let made = on_a_thread(context, cluster, Authority::make).await?;
    Ok(remember(context, &cluster.name, made))
}

fn opened(context: &ActionContext, cluster: &str) -> Arc<Opened> {
    context.scope.kept::<Opened>(cluster)
}

fn remember(context: &ActionContext, cluster: &str, authority: Authority) -> Arc<Authority> {
    let authority = Arc::new(authority);
    *opened(context, cluster).0.lock().unwrap_or_else(PoisonError::into_inner) = Some(authority.clone());
    authority
}

/// Which authority signs has changed.
pub(super) fn forget(context: &ActionContext, cluster: &str) {
    *opened(context, cluster).0.lock().unwrap_or_else(PoisonError::into_inner) = None;
}

/// Opening a key may ask for a passphrase, and so take its time.
pub(super) async fn on_a_thread<T: Send + 'static>(
    context: &ActionContext,
    cluster: &Cluster,
    work: impl FnOnce(&str, &TlsSection, &Keeping<'_>) -> Result<T, PkiError> + Send + 'static,
) -> Result<T, ActionError> {
    let (store, opener) = (cluster.store(context), context.opener.clone());
    let (name, tls) = (cluster.name.clone(), cluster.tls.clone());
    let work = move || work(&name, &tls, &Keeping { store: &store, opener: opener.as_ref() });
    let ended = tokio::task::spawn_blocking(work).await;
    ended.map_err(|error| ActionError::Failed(error.to_string()))?.map_err(failed)
}
