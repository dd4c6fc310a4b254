//! `pki_certificate`: a key and a certificate on the target.

use std::time::Duration;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    Action, ActionContext, ActionError, BuildContext, EngineAction, Module, ModuleError, ResultField, Running,
    ca::{authority, failed},
    cluster::{CLUSTER_TLS, Cluster, ClusterArgs, tunnel},
    local::Fingerprint,
    place::{Place, attributes},
};
use crate::{
    model::{Diff, Effects, FileMode, Outcome, Resource, Seconds, Value},
    remote::Payload,
};
use etcdrun_etcd::{
    etcd::{Credential, EtcdError, MemberClient},
    pki::{Authority, Brought, Certificate, Issued, LeafKey, Request, Store, Usage, Wish},
};

const LOOK: &str = concat!(
    include_str!("../support/attributes.sh"),
    include_str!("../support/staged.sh"),
    include_str!("pair.sh"),
    include_str!("certificate.sh")
);

const SWAP: &str = concat!(include_str!("../support/staged.sh"), include_str!("pair.sh"), "put_pair\n");

/// Gives the target a key and a certificate of the cluster's authority, and keeps them good.
///
/// A certificate that ends soon, or that no longer says what it should, is replaced, and its key stays; so a server that
/// reads its certificate anew needs no restart. The key is made here, sent once, and kept nowhere else.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PkiCertificate {
    /// The cluster whose authority signs, by its `name` and `tls`; a member's own if not given.
    #[serde(default)]
    cluster: ClusterArgs,
    /// The common name.
    name: String,
    /// Host names and addresses that the certificate is for.
    #[serde(default)]
    names: Vec<String>,
    /// The file for the certificate on the target.
    certificate: String,
    /// The file for the key on the target; mode 0600.
    key: String,
    /// The file for the authority's certificate on the target.
    authority: String,
    /// A certificate that exists, on the operator's machine; it is sent rather than made, and never renewed.
    #[serde(default)]
    certificate_file: Option<String>,
    /// The key of `certificate_file`; it may be encrypted with age.
    #[serde(default)]
    key_file: Option<String>,
    /// Renew it so long before its end, if that is longer than what the cluster's `tls` says.
    #[serde(default)]
    early_renewal: Option<Seconds>,
    /// Refuse to make a new key: servers that run would not take it up without a restart.
    #[serde(default)]
    keep_key: bool,
    /// The address at which servers on the target use the certificate, and `ports` of them: where one answers, a renewed
    /// certificate must be the one that it shows.
    #[serde(default)]
    address: Option<String>,
    /// The ports at `address` where servers use the certificate.
    #[serde(default)]
    ports: Vec<u16>,
    #[serde(default)]
    owner: Option<String>,
    #[serde(default)]
    group: Option<String>,
    /// The unit that reads key and authority when it starts: while it runs, new ones wait beside the files, as FILE.next, until
    /// `etcd_service` restarts it. A renewed certificate does not wait.
    #[serde(default)]
    stage_for: Option<String>,
}

impl Module for PkiCertificate {
    const NAME: &'static str = "pki_certificate";
    const CLUSTER: &'static [crate::task::ClusterKey] = CLUSTER_TLS;
    const EXAMPLE: &'static str = "\
- name: Install the member certificate
  pki_certificate:
    name: \"{{ inventory_hostname }}\"
    names: [\"{{ member.ip }}\", localhost, 127.0.0.1]
    certificate: /etc/etcd/pki/server.crt
    key: /etc/etcd/pki/server.key
    authority: /etc/etcd/pki/ca.crt
    owner: etcd
";
    const RESULT: &'static [ResultField] = &[
        ResultField { name: "new_key", doc: "Whether the key is new; etcd reads it only at start." },
        ResultField { name: "new_authority", doc: "Whether another CA is trusted from the next start on." },
        ResultField { name: "serial", doc: "The serial number of the certificate." },
        ResultField { name: "not_after", doc: "When the certificate expires." },
        ResultField { name: "days_left", doc: "How many days that is away." },
    ];

    fn effects(&self) -> Effects {
        Effects::converging().writing([&self.certificate, &self.key, &self.authority].map(Resource::path))
    }

    fn action(self, _: &BuildContext<'_>) -> Result<Action, ModuleError> {
        let cluster = self.cluster.known()?;
        Ok(Action::Engine(Box::new(Keep { cluster, module: self })))
    }
}

struct Keep {
    module: PkiCertificate,
    cluster: Cluster,
}

/// What is on the target.
struct Found {
    certificate: Option<Certificate>,
    key_sha256: Option<String>,
    authority_sha256: Option<String>,
    /// Owner or mode of something was changed.
    fixed: bool,
    /// Key and certificate are those that wait for the restart.
    is_staged: bool,
    /// Another key waits for the restart, which counts only where it is staged.
    key_waits: bool,
    /// Another authority waits for the restart.
    is_authority_staged: bool,
}

impl EngineAction for Keep {
    fn run<'a>(&'a self, context: &'a ActionContext) -> Running<'a> {
        Box::pin(async move {
            let looked = context.run(self.look()).await?;
            if looked.failed {
                return Ok(looked);
            }
            let found = Found::of(&looked);
            let Some(authority) = authority(context, &self.cluster).await? else {
                return match context.check_mode() {
                    true => Ok(Outcome {
                        msg: "would be signed by the CA that is still to be created".into(),
                        ..Outcome::changed()
                    }),
                    false => Err(ActionError::Failed(format!(
                        "the cluster `{}` has no CA; `pki_ca` creates one",
                        self.cluster.name
                    ))),
                };
            };
            is_valid(&self.cluster.name, &authority)?;
            match (&self.module.certificate_file, &self.module.key_file) {
                (Some(certificate), Some(key)) => self.send(context, &authority, &found, certificate, key).await,
                _ => self.converge(context, &authority, found).await,
            }
        })
    }
}

fn public_sha256(certificate: &Certificate) -> String {
    Fingerprint::of(&certificate.public_key).sha256
}

/// What an authority signs is worth nothing once it has ended.
pub(super) fn is_valid(cluster: &str, authority: &Authority) -> Result<(), ActionError> {
    match has_ended(authority) {
        false => Ok(()),
        true => Err(ActionError::Failed(format!(
            "the CA itself has expired, at {}, so it can sign nothing; replace it with `etcdrun certs rotate-ca {cluster} --expired`",
            authority.certificate.not_after
        ))),
    }
}

pub(super) fn has_ended(authority: &Authority) -> bool {
    authority.certificate.not_after <= Timestamp::now()
}

fn with_end(outcome: Outcome, certificate: Certificate) -> Outcome {
    let days = certificate.days_left();
    outcome
        .with("serial", certificate.serial)
        .with("not_after", certificate.not_after.to_string())
        .with("days_left", days)
}

impl Found {
    fn of(looked: &Outcome) -> Self {
        let text = |name: &str| looked.data.get(name).and_then(Value::as_str);
        Self {
            // What cannot be read is as good as none.
            certificate: text("certificate").and_then(|pem| Certificate::parse(pem).ok()),
            key_sha256: text("key_sha256").map(str::to_owned),
            authority_sha256: text("authority_sha256").map(str::to_owned),
            fixed: looked.changed,
            is_staged: looked.data.contains_key("staged"),
            key_waits: looked.data.contains_key("key_waits"),
            is_authority_staged: looked.data.contains_key("authority_staged"),
        }
    }

    /// Whether something was changed by looking, or is going to be when the server restarts.
    fn waits(&self) -> bool {
        self.fixed || self.is_staged || self.is_authority_staged
    }
}

impl Keep {
    fn look(&self) -> Payload {
        let payload = Payload::new(LOOK)
            .value("certificate", &self.module.certificate)
            .value("key", &self.module.key)
            .value("authority", &self.module.authority)
            .maybe("stage_for", self.module.stage_for.as_deref());
        attributes(payload, self.module.owner.as_deref(), self.module.group.as_deref(), None)
    }

    fn request(&self) -> Request {
        let tls = &self.cluster.tls;
        let names = self.module.names.iter().chain(&tls.names).map(String::as_str);
        let request = Request::new(&self.module.name, Usage::Member, tls).with_names(names);
        let early = self.module.early_renewal.map_or(Duration::ZERO, |early| early.0);
        Request { early_renewal: request.early_renewal.max(early), ..request }
    }

    /// Like the request's own wish, but a key that is gone or was replaced needs a new one.
    fn wish(&self, found: &Found, authority: &Authority, issued: Option<&Issued>, can_renew: bool) -> Wish {
        let request = self.request();
        let Some(key) = &found.key_sha256 else { return Wish::KeyAndCertificate("there is no key yet".into()) };
        if issued.is_some_and(|issued| issued.key_sha256 != *key) {
            if found.key_waits {
                return Wish::KeyAndCertificate("a new one waits for a restart".into());
            }
            return Wish::KeyAndCertificate("the key is not the one that was sent".into());
        }
        let public = issued.and_then(|issued| issued.public_sha256.as_deref());
        let is_for = |certificate: &Certificate| public.is_none_or(|public| public == public_sha256(certificate));
        if !found.certificate.as_ref().is_none_or(is_for) {
            return Wish::KeyAndCertificate("the certificate is not for the key that was sent".into());
        }
        match request.wish(found.certificate.as_ref(), &authority.certificate, Timestamp::now()) {
            Wish::Certificate(why) if !can_renew => {
                Wish::KeyAndCertificate(format!("{why}, and there is no request for its key"))
            }
            wish => wish,
        }
    }

    async fn converge(
        &self,
        context: &ActionContext,
        authority: &Authority,
        found: Found,
    ) -> Result<Outcome, ActionError> {
        let store = self.cluster.store(context);
        let issued = store.issued(&self.module.name).map_err(failed)?;
        let can_renew = authority.can_renew(&self.module.name, &store).map_err(failed)?;
        let wish = self.wish(&found, authority, issued.as_ref(), can_renew);
        let new_authority =
            found.authority_sha256.as_deref() != Some(&*Fingerprint::of(authority.trusted.as_bytes()).sha256);
        let (why, new_key) = match &wish {
            Wish::Nothing => (None, false),
            Wish::Certificate(why) => (Some(why), false),
            Wish::KeyAndCertificate(why) => (Some(why), true),
        };
        self.may_change_key(&found, new_key.then_some(why).flatten())?;
        let changed = found.waits() || new_authority || why.is_some();
        let mut outcome = Outcome { changed, ..Outcome::ok() }
            .with("new_key", new_key || found.is_staged)
            .with("new_authority", new_authority);
        if let Some(why) = why {
            outcome.msg = format!("{} certificate: {why}", if found.certificate.is_some() { "new" } else { "first" });
            outcome.diff.push(self.diff(found.certificate.as_ref()));
        } else if found.is_staged {
            outcome.msg = "the new key waits for the restart".into();
        }
        if context.check_mode() {
            return Ok(outcome);
        }
        self.put_authority(context, authority, &found, new_authority).await?;
        let is_staged = found.is_staged;
        let certificate = match why {
            None => found.certificate,
            Some(_) => Some(self.issue(context, authority, &store, &found, new_key).await?),
        };
        // Where nothing may restart, one that was renewed before must be shown by now, too.
        if let Some(certificate) =
            certificate.as_ref().filter(|_| (why.is_some() || self.module.keep_key) && !new_key && !is_staged)
        {
            self.is_served(context, authority, certificate).await?;
        }
        Ok(match certificate {
            Some(certificate) => with_end(outcome, certificate),
            None => outcome,
        })
    }

    fn may_change_key(&self, found: &Found, why: Option<&String>) -> Result<(), ActionError> {
        match why.filter(|_| self.module.keep_key) {
            None => Ok(()),
            Some(why) => Err(ActionError::Failed(format!(
                "{} needs a new key ({why}), which etcd reads only at a restart: run `etcdrun playbook {}`",
                self.module.name,
                if found.certificate.is_some() { "settings.yaml" } else { "site.yaml" }
            ))),
        }
    }

    /// Sends what was brought along, where it differs.
    async fn send(
        &self,
        context: &ActionContext,
        authority: &Authority,
        found: &Found,
        certificate: &str,
        key: &str,
    ) -> Result<Outcome, ActionError> {
        let brought = Brought::open(certificate, key, context.opener.as_ref()).map_err(failed)?;
        context.masker.add(&brought.key);
        let new_key = found.key_sha256.as_deref() != Some(&*Fingerprint::of(brought.key.as_bytes()).sha256);
        let new_authority =
            found.authority_sha256.as_deref() != Some(&*Fingerprint::of(authority.trusted.as_bytes()).sha256);
        let new_certificate = found.certificate.as_ref() != Some(&brought.certificate);
        self.may_change_key(found, new_key.then(|| "another one was provided".to_owned()).as_ref())?;
        if !context.check_mode() {
            self.put_authority(context, authority, found, new_authority).await?;
            if new_key {
                self.put_pair(context, brought.key.as_bytes(), brought.pem.as_bytes()).await?;
            } else if new_certificate {
                self.put_certificate(context, found, brought.pem.as_bytes()).await?;
            }
        }
        let changed = found.waits() || new_key || new_authority || new_certificate;
        let outcome = Outcome { changed, ..Outcome::ok() }
            .with("new_key", new_key || found.is_staged)
            .with("new_authority", new_authority);
        Ok(with_end(outcome, brought.certificate))
    }

    async fn issue(
        &self,
        context: &ActionContext,
        authority: &Authority,
        store: &Store,
        found: &Found,
        new_key: bool,
    ) -> Result<Certificate, ActionError> {
        let request = self.request();
        let key = match &found.certificate {
            Some(certificate) if !new_key => LeafKey::of(certificate),
            _ => LeafKey::generate(request.algorithm),
        };
        let leaf = authority.issue(&request, key.map_err(failed)?, store).await.map_err(failed)?;
        let certificate = Certificate::parse(&leaf.certificate).map_err(failed)?;
        let key_sha256 = match &leaf.key {
            Some(key) => Fingerprint::of(key.as_bytes()).sha256,
            None => found.key_sha256.clone().unwrap_or_default(),
        };
        let issued = Issued {
            serial: certificate.serial.clone(),
            not_after: certificate.not_after.to_string(),
            key_sha256,
            public_sha256: Some(public_sha256(&certificate)),
        };
        // Before it is sent: a key that nobody here knows of would look like somebody else's.
        store.keep_issued(&self.module.name, &issued).map_err(failed)?;
        match &leaf.key {
            Some(key) => {
                context.masker.add(key);
                self.put_pair(context, key.as_bytes(), leaf.certificate.as_bytes()).await?;
            }
            None => self.put_certificate(context, found, leaf.certificate.as_bytes()).await?,
        }
        Ok(certificate)
    }

    /// A server that runs reads its certificate at each handshake; if it shows another, it would go on until that ends.
    async fn is_served(
        &self,
        context: &ActionContext,
        authority: &Authority,
        certificate: &Certificate,
    ) -> Result<(), ActionError> {
        let Some(address) = &self.module.address else { return Ok(()) };
        for port in &self.module.ports {
            let Some(session) = context.reach.session(&self.module.name, &context.session) else { return Ok(()) };
            let credential = Credential { authority: authority.trusted.clone(), ..Credential::default() };
            let client = MemberClient::new(&self.module.name, address, *port, &credential, tunnel(session));
            let client = client.map_err(|error| ActionError::Failed(error.to_string()))?;
            let shown = match client.served(*port).await {
                Ok(shown) => shown,
                Err(error @ EtcdError::Handshake { .. }) => {
                    return Err(ActionError::Failed(format!(
                        "the certificate was renewed, but at port {port} {error}; check that etcd reads {}",
                        self.module.certificate
                    )));
                }
                // Where nothing answers, nothing has to be told.
                Err(_) => continue,
            };
            if shown.serial != certificate.serial {
                return Err(ActionError::Failed(format!(
                    "the certificate was renewed, but etcd at port {port} still presents the one with the serial number {}; check that it reads {}",
                    shown.serial, self.module.certificate
                )));
            }
        }
        Ok(())
    }

    /// A key and its certificate, both or none: etcd reads them at each handshake, and a pair that does not fit makes none.
    async fn put_pair(&self, context: &ActionContext, key: &[u8], certificate: &[u8]) -> Result<(), ActionError> {
        let PkiCertificate { key: key_file, certificate: certificate_file, .. } = &self.module;
        self.put(context, self.place(&format!("{key_file}.next"), "600", true), key).await?;
        self.put(context, self.place(&format!("{certificate_file}.next"), "644", false), certificate).await?;
        let swap = Payload::new(SWAP)
            .value("key", key_file)
            .value("certificate", certificate_file)
            .maybe("stage_for", self.module.stage_for.as_deref());
        let outcome = context.run(swap).await?;
        if outcome.failed { Err(ActionError::Failed(outcome.msg)) } else { Ok(()) }
    }

    /// A certificate for the key that is there, or that waits.
    async fn put_certificate(&self, context: &ActionContext, found: &Found, body: &[u8]) -> Result<(), ActionError> {
        let next = if found.is_staged { ".next" } else { "" };
        let place = self.place(&format!("{}{next}", self.module.certificate), "644", false);
        self.put(context, place, body).await
    }

    /// The authority, where another one is there or waits.
    async fn put_authority(
        &self,
        context: &ActionContext,
        authority: &Authority,
        found: &Found,
        is_new: bool,
    ) -> Result<(), ActionError> {
        if !is_new && !found.is_authority_staged {
            return Ok(());
        }
        let place = self.place(&self.module.authority, "644", false);
        let place = Place { stage_for: self.module.stage_for.clone(), ..place };
        self.put(context, place, authority.trusted.as_bytes()).await
    }

    fn place(&self, dest: &str, mode: &str, secret: bool) -> Place {
        Place {
            dest: dest.to_owned(),
            owner: self.module.owner.clone(),
            group: self.module.group.clone(),
            mode: mode.parse::<FileMode>().ok(),
            secret,
            ..Place::default()
        }
    }

    async fn put(&self, context: &ActionContext, place: Place, body: &[u8]) -> Result<(), ActionError> {
        let outcome = context.run(place.inline(body)).await?;
        if outcome.failed { Err(ActionError::Failed(outcome.msg)) } else { Ok(()) }
    }

    /// What is said before and after, without what is in keys.
    fn diff(&self, before: Option<&Certificate>) -> Diff {
        let request = self.request();
        let lines = |name: &str, organization: Option<&str>, names: &mut dyn Iterator<Item = &String>| {
            let names: Vec<&str> = names.map(String::as_str).collect();
            format!("name: {name}\norganization: {}\nfor: {}\n", organization.unwrap_or("-"), names.join(", "))
        };
        let before = before.map(|certificate| {
            let said =
                lines(&certificate.common_name, certificate.organization.as_deref(), &mut certificate.names.iter());
            format!("{said}until: {}\n", certificate.not_after)
        });
        let after = lines(&request.common_name, request.organization.as_deref(), &mut request.names.iter());
        let until = Timestamp::now() + jiff::SignedDuration::try_from(request.validity).unwrap_or_default();
        let until = until.strftime("%Y-%m-%d").to_string();
        Diff {
            label: self.module.certificate.clone(),
            before: before.unwrap_or_default(),
            after: format!("{after}until: about {until}\n"),
        }
    }
}
