//! `pki_rotation`: another authority takes the place of a cluster's, phase by phase.

use std::time::Duration;

use futures_util::future::join_all;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use tokio::time::{Instant, sleep};

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    ca::{authority, failed, forget, on_a_thread},
    certificate::{has_ended, is_valid},
    cluster_args::{Cluster, ClusterArgs, WHOLE_CLUSTER, fence},
};
use crate::{
    inventory::sections::{AuthMethod, TlsSection},
    model::{Effects, Outcome},
};
use etcdrun_etcd::{
    etcd::{Credential, EtcdError, PEER_PORT},
    pki::{
        Authority, Certificate, Keeping, LeafKey, PkiError, Request, Rotation, RotationPhase, STRANGER, Store, Usage,
    },
};

/// Rotates the CA of a cluster, in phases: `trust`, `issue`, `finish`.
///
/// This starts a phase; `pki_certificate` and a rolling restart apply it to the members; then this ends it, when every
/// member was verified by a handshake at its ports. Only then may the next phase start. In `trust` members
/// and clients start to trust the new CA too; in `issue` it signs; in `finish` the old one is no longer trusted.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PkiRotation {
    #[serde(default)]
    cluster: ClusterArgs,
    /// The peer port.
    #[serde(default = "peer_port")]
    peer_port: u16,
    /// The phase.
    phase: RotationPhase,
    /// Whether it starts, ends, or is abandoned.
    state: PhaseState,
    /// The old CA has expired: members no longer trust each other, so the last phase may be the first.
    #[serde(default)]
    expired: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
enum PhaseState {
    Begun,
    Ended,
    /// The new CA is dropped. Only while the old one still signs.
    Abandoned,
}

fn peer_port() -> u16 {
    PEER_PORT
}

impl Module for PkiRotation {
    const NAME: &'static str = "pki_rotation";
    const CLUSTER: &'static [crate::task::ClusterKey] = WHOLE_CLUSTER;
    const EXAMPLE: &'static str = "\
- name: Start the rotation
  pki_rotation:
    phase: trust
    state: begun
  once_per: cluster
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "phase", doc: "The phase that the cluster is in." },
        ResultField {
            name: "trusted",
            doc: "The file with the certificates that clients should trust, on the operator's workstation.",
        },
    ];

    fn effects(&self) -> Effects {
        Effects::converging()
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Rotate { cluster, module: self })))
    }
}

struct Rotate {
    module: PkiRotation,
    cluster: Cluster,
}

impl EngineAction for Rotate {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let store = self.cluster.store(context);
            let there = store.rotation().map_err(failed)?.filter(|there| !there.is_over(&self.cluster.tls));
            let outcome = match self.module.state {
                PhaseState::Begun => self.begin(context, &store, there).await?,
                PhaseState::Ended => self.end(context, &store, there).await?,
                PhaseState::Abandoned => self.abandon(context, &store, there).await?,
            };
            Ok(outcome
                .with("phase", self.module.phase.name())
                .with("trusted", store.certificate_path().display().to_string()))
        })
    }
}

impl Rotate {
    async fn begin(
        &self,
        context: &ActionContext,
        store: &Store,
        there: Option<Rotation>,
    ) -> Result<Outcome, ActionError> {
        let (phase, cluster) = (self.module.phase, &self.cluster.name);
        if let Some(there) = there.as_ref().filter(|there| there.phase == phase) {
            if !context.check_mode() {
                // A crash may have come in between.
                store.keep_certificate(&there.trusted()).map_err(failed)?;
            }
            return Ok(Outcome::ok());
        }
        let anew = self.module.expired && there.is_none();
        // It ended in the middle of its rotation: phases in which both are good are of no use any more.
        let is_late =
            self.module.expired && there.as_ref().is_some_and(|there| there.phase < phase && is_over(&there.old));
        if let Some(refusal) = refusal(cluster, phase, there.as_ref()).filter(|_| !anew && !is_late) {
            return Ok(Outcome { refused: true, ..Outcome::failed(refusal) });
        }
        let is_needed = there.is_none() && (anew || !context.check_mode());
        let old = if is_needed { authority(context, &self.cluster).await? } else { None };
        if let Some(old) = old.as_ref().filter(|old| anew && !has_ended(old)) {
            let msg = format!(
                "the CA of `{cluster}` is valid until {}: rotate it without an outage with `etcdrun certs rotate-ca {cluster}`",
                old.certificate.not_after
            );
            return Ok(Outcome { refused: true, ..Outcome::failed(msg) });
        }
        let msg = format!("the phase `{}` starts", phase.name());
        if context.check_mode() {
            return Ok(Outcome { msg, ..Outcome::changed() });
        }
        fence(context).await?;
        match there {
            None => {
                if let Some(old) = old.filter(|_| !anew) {
                    is_valid(cluster, &old)?;
                }
                let begin = move |cluster: &str, tls: &TlsSection, keeping: &Keeping<'_>| {
                    Rotation::begin(cluster, tls, keeping, phase)
                };
                drop(on_a_thread(context, &self.cluster, begin).await?);
            }
            Some(there) => {
                store.keep_rotation(&Rotation { phase, complete: false, ..there }).map_err(failed)?;
            }
        }
        forget(context, cluster);
        Ok(Outcome { msg, ..Outcome::changed() })
    }

    async fn end(
        &self,
        context: &ActionContext,
        store: &Store,
        there: Option<Rotation>,
    ) -> Result<Outcome, ActionError> {
        let (phase, Cluster { name: cluster, tls, .. }) = (self.module.phase, &self.cluster);
        let is_left = |there: &Rotation| !there.complete || there.awaits_its_end(tls);
        let Some(there) = there.filter(|there| there.phase == phase && is_left(there)) else {
            let msg = next_step(cluster, phase, &store.certificate_path().display().to_string());
            return Ok(Outcome { msg, ..Outcome::ok() });
        };
        if context.check_mode() {
            return Ok(Outcome { msg: "every member would be checked".into(), ..Outcome::changed() });
        }
        if !there.complete {
            self.every_member(context, &there).await?;
        }
        fence(context).await?;
        let mut msg = next_step(cluster, phase, &store.certificate_path().display().to_string());
        if phase == RotationPhase::Finish {
            if !there.end(tls, store).map_err(failed)? {
                msg += "; now replace `ca` by `ca.next` in the inventory";
            }
        } else {
            store.keep_rotation(&Rotation { complete: true, ..there }).map_err(failed)?;
        }
        forget(context, cluster);
        Ok(Outcome { msg, ..Outcome::changed() })
    }

    /// Forgets the new authority. What members have of it goes with the certificates that they get next.
    async fn abandon(
        &self,
        context: &ActionContext,
        store: &Store,
        there: Option<Rotation>,
    ) -> Result<Outcome, ActionError> {
        let cluster = &self.cluster.name;
        let Some(there) = there else { return Ok(Outcome::ok()) };
        if there.phase != RotationPhase::Trust {
            let flag = if there.phase == RotationPhase::Issue && !there.complete { "--issue" } else { "--finish" };
            return Ok(Outcome {
                refused: true,
                ..Outcome::failed(format!(
                    "the new CA of `{cluster}` already signs, and members have its certificates: continue with `etcdrun certs rotate-ca {cluster} {flag}`; after that, another rotation may replace it"
                ))
            });
        }
        let msg = format!("the new CA of {cluster} was dropped; the old one stays");
        if context.check_mode() {
            return Ok(Outcome { msg, ..Outcome::changed() });
        }
        fence(context).await?;
        there.abandon(store).map_err(failed)?;
        forget(context, cluster);
        Ok(Outcome { msg, ..Outcome::changed() })
    }

    /// Waits until all members are where the phase wants them; a handshake that was refused a moment ago may be well now.
    async fn every_member(&self, context: &ActionContext, there: &Rotation) -> Result<(), ActionError> {
        const LIMIT: Duration = Duration::from_secs(20);
        const PAUSE: Duration = Duration::from_millis(200);
        let start = Instant::now();
        loop {
            let seen = match there.phase {
                RotationPhase::Trust => self.trust_both(context, there).await,
                RotationPhase::Issue => self.show_new(context, there).await,
                RotationPhase::Finish => self.refuse_old(context, there).await,
            };
            match seen {
                Err(ActionError::Failed(_)) if start.elapsed() < LIMIT => sleep(PAUSE).await,
                seen => return seen,
            }
        }
    }

    /// A client with a certificate of the new authority is let in.
    async fn trust_both(&self, context: &ActionContext, there: &Rotation) -> Result<(), ActionError> {
        let problem = |name: &str, port: u16, error: EtcdError| {
            format!("{name} does not trust the new CA yet, at port {port}: {error}")
        };
        let stranger = self.stranger(context, there, Rotation::new_authority).await?;
        for (name, port, answer) in self.knock(context, &stranger).await? {
            answer.map_err(|error| ActionError::Failed(problem(&name, port, error)))?;
        }
        Ok(())
    }

    /// What a member shows is signed by the new authority.
    async fn show_new(&self, context: &ActionContext, there: &Rotation) -> Result<(), ActionError> {
        let new = Certificate::parse(&there.new).map_err(failed)?;
        let credential = Credential { authority: there.trusted(), ..Credential::default() };
        for port in [self.cluster.client_port, self.module.peer_port] {
            for client in self.cluster.clients_at(context, port, &credential)? {
                let shown = client.served(port).await.map_err(|error| ActionError::Failed(error.to_string()))?;
                if !shown.is_signed_by(&new) {
                    return Err(ActionError::Failed(format!(
                        "{} still presents a certificate of the old CA, at port {port}",
                        client.name
                    )));
                }
            }
        }
        Ok(())
    }

    /// A client with a certificate of the old authority is refused, and one of the new authority is let in.
    async fn refuse_old(&self, context: &ActionContext, there: &Rotation) -> Result<(), ActionError> {
        self.trust_both(context, there).await?;
        let stranger = self.stranger(context, there, Rotation::old_authority).await?;
        for (name, port, answer) in self.knock(context, &stranger).await? {
            if answer.is_ok() {
                return Err(ActionError::Failed(format!("{name} still trusts the old CA, at port {port}")));
            }
        }
        Ok(())
    }

    /// A credential of nobody in particular, for now, signed by one of the two.
    async fn stranger(
        &self,
        context: &ActionContext,
        there: &Rotation,
        signer: fn(&Rotation, &TlsSection, &Keeping<'_>) -> Result<Authority, PkiError>,
    ) -> Result<Credential, ActionError> {
        let rotation = there.clone();
        let sign = move |_: &str, tls: &TlsSection, keeping: &Keeping<'_>| signer(&rotation, tls, keeping);
        let signer = on_a_thread(context, &self.cluster, sign).await?;
        let request = Request::new(STRANGER, Usage::Client, &self.cluster.tls);
        let key = LeafKey::generate(request.algorithm).map_err(failed)?;
        let leaf = signer.issue(&request, key, &self.cluster.store(context)).await.map_err(failed)?;
        let identity = Some((leaf.certificate, leaf.key.unwrap_or_default()));
        Ok(Credential { authority: there.trusted(), identity, login: None })
    }

    /// Asks every member at each port where it looks at certificates.
    async fn knock(
        &self,
        context: &ActionContext,
        credential: &Credential,
    ) -> Result<Vec<(String, u16, Result<String, EtcdError>)>, ActionError> {
        let looks = self.cluster.auth.method() == AuthMethod::Certificate;
        let ports = looks.then_some(self.cluster.client_port).into_iter().chain([self.module.peer_port]);
        let mut answers = Vec::new();
        for port in ports {
            let clients = self.cluster.clients_at(context, port, credential)?;
            let asked = clients.iter().map(|client| async move {
                let answer = client.get("/version").await;
                (client.name.to_string(), port, answer)
            });
            answers.extend(join_all(asked).await);
        }
        Ok(answers)
    }
}

/// Why a phase cannot begin now, and what can.
/// Whether this certificate is valid no more.
fn is_over(pem: &str) -> bool {
    Certificate::parse(pem).is_ok_and(|certificate| certificate.not_after <= Timestamp::now())
}

fn refusal(cluster: &str, wanted: RotationPhase, there: Option<&Rotation>) -> Option<String> {
    use RotationPhase::{Finish, Issue, Trust};
    let first = format!("`etcdrun certs rotate-ca {cluster}`");
    match (wanted, there.map(|there| (there.phase, there.complete))) {
        (Trust, None) | (Issue, Some((Trust, true))) | (Finish, Some((Issue, true))) => None,
        (_, None) => Some(format!("no CA rotation of `{cluster}` is in progress; start one with {first}")),
        (Trust, Some((Finish, true))) => {
            Some("the last rotation is finished: replace `ca` by `ca.next` in the inventory first".to_owned())
        }
        (wanted, Some((now, _))) if now > wanted => {
            let flag = if now == Issue { "--issue" } else { "--finish" };
            Some(format!("`{cluster}` is already in the phase `{}`; continue with {first} {flag}", now.name()))
        }
        (_, Some((Trust, false))) => Some(format!("not all members trust the new CA; run {first} again")),
        (_, Some(_)) => Some(format!("not all members have certificates of the new CA; run {first} --issue first")),
    }
}

/// What is to be done once a phase is over.
fn next_step(cluster: &str, phase: RotationPhase, bundle: &str) -> String {
    match phase {
        RotationPhase::Trust => format!(
            "all members of {cluster} trust both CAs. Give {bundle} to every client (`etcdrun certs export`); then run: etcdrun certs rotate-ca {cluster} --issue"
        ),
        RotationPhase::Issue => format!(
            "all members of {cluster} have certificates of the new CA, and so have the users here. Give every client its new one (`etcdrun certs export`); then run: etcdrun certs rotate-ca {cluster} --finish"
        ),
        RotationPhase::Finish => format!("the members of {cluster} trust only the new CA"),
    }
}
