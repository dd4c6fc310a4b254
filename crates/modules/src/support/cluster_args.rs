//! The cluster that a module is about: how a task says which, and the way to its members.

use std::{io, sync::Arc, time::Duration};

use async_trait::async_trait;
use rand::{RngExt, distr::Alphanumeric};
use schemars::JsonSchema;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{ActionContext, ActionError, ClusterKey, ModuleError};
use crate::{
    http::Dial,
    inventory::sections::{AuthMethod, AuthSection, TlsSection},
    model::Value,
    pki::ca::{authority, failed},
    remote::{Payload, Session},
    ssh::Stream,
};
use etcdrun_etcd::{
    etcd::{
        Credential, EtcdError, MemberClient,
        observe::{Observation, observe, settled},
    },
    pki::{Authority, Client, Keeping, Renewal, STRANGER, Store},
};

/// By this name the state folder knows a password that root is about to get: whoever comes back after a crash tries it.
const NEXT_ROOT: &str = "root.next";

/// The cluster. On a member, missing fields are those of the member's own cluster; with a `name`, nothing is taken from there.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ClusterArgs {
    /// Its name.
    name: String,
    /// All its members, in the form of `cluster.members`.
    members: Vec<Value>,
    /// Its section `tls`.
    tls: TlsSection,
    /// Its section `auth`.
    auth: AuthSection,
    /// The client port.
    client_port: u16,
    /// The peer port. Gates compare it with etcd's member list.
    peer_port: Option<u16>,
}

impl Default for ClusterArgs {
    fn default() -> Self {
        Self {
            // A template that stands for all of it has no name yet; that there is one is asked in `known`.
            name: String::new(),
            members: Vec::new(),
            tls: TlsSection::default(),
            auth: AuthSection::default(),
            client_port: etcdrun_etcd::etcd::CLIENT_PORT,
            peer_port: None,
        }
    }
}

impl ClusterArgs {
    /// The cluster, if it is one.
    pub(crate) fn known(&self) -> Result<Cluster, ModuleError> {
        if self.name.is_empty() {
            return Err(ModuleError::new("`cluster` has no `name`"));
        }
        let members: Result<Vec<Member>, ModuleError> = self.members.iter().map(Member::read).collect();
        Ok(Cluster {
            name: self.name.clone(),
            members: members?,
            tls: self.tls.clone(),
            auth: self.auth.clone(),
            client_port: self.client_port,
            peer_port: self.peer_port,
        })
    }
}

/// Its keys, with what stands for them on a member.
const NAME: ClusterKey = key("name", "{{ cluster.name }}");
const MEMBERS: ClusterKey = key("members", "{{ cluster.members }}");
const TLS: ClusterKey = key("tls", "{{ cluster.tls }}");
const AUTH: ClusterKey = key("auth", "{{ cluster.auth }}");
const CLIENT_PORT: ClusterKey = port("client_port", "{{ cluster.etcd.client_port | default(2379) }}");
const PEER_PORT: ClusterKey = port("peer_port", "{{ cluster.etcd.peer_port | default(2380) }}");

/// For a module that asks the members.
pub(crate) const WHOLE_CLUSTER: &[ClusterKey] = &[NAME, MEMBERS, TLS, AUTH, CLIENT_PORT, PEER_PORT];
/// For a module that only has to know who belongs to it.
pub(crate) const CLUSTER_MEMBERS: &[ClusterKey] = &[NAME, MEMBERS];
/// For a module that makes certificates for it.
pub(crate) const CLUSTER_TLS: &[ClusterKey] = &[NAME, TLS];

const fn key(name: &'static str, own: &'static str) -> ClusterKey {
    ClusterKey { name, own, has_default: false }
}

const fn port(name: &'static str, own: &'static str) -> ClusterKey {
    ClusterKey { name, own, has_default: true }
}

/// A member, as the variable `cluster.members` describes it.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub name: String,
    pub ip: String,
}

impl Member {
    fn read(value: &Value) -> Result<Self, ModuleError> {
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        match (text("name"), text("ip")) {
            (Some(name), Some(ip)) => Ok(Self { name, ip }),
            (Some(name), None) => {
                Err(ModuleError::new(format!("the member `{name}` has no address that etcd could bind"))
                    .help("set its `address` to an IP address, or set `etcd: {ip: ...}`"))
            }
            _ => Err(ModuleError::new("`members` has the form of `cluster.members`")),
        }
    }

    /// As `initial-cluster` wants it.
    pub fn peer(&self, port: u16) -> String {
        format!("{}={}", self.name, self.peer_url(port))
    }

    /// Where the other members reach it.
    pub fn peer_url(&self, port: u16) -> String {
        let host = if self.ip.contains(':') { format!("[{}]", self.ip) } else { self.ip.clone() };
        format!("https://{host}:{port}")
    }
}

/// Which cluster, who belongs to it, and how one gets in.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    pub name: String,
    pub members: Vec<Member>,
    pub tls: TlsSection,
    pub auth: AuthSection,
    pub client_port: u16,
    pub peer_port: Option<u16>,
}

impl Cluster {
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// The members' names.
    pub fn names(&self) -> Vec<String> {
        self.members.iter().map(|member| member.name.clone()).collect()
    }

    /// Where the inventory says that the members reach each other, by name; nothing where it is not known.
    pub fn peer_urls(&self) -> Vec<(String, String)> {
        let urls = self
            .peer_port
            .map(|port| self.members.iter().map(move |member| (member.name.clone(), member.peer_url(port))));
        urls.into_iter().flatten().collect()
    }

    /// Where its certificates are kept.
    pub fn store(&self, context: &ActionContext) -> Store {
        Store::new(&context.state, &self.name)
    }

    /// Its authority, which there must be by now.
    async fn authority(&self, context: &ActionContext) -> Result<Arc<Authority>, ActionError> {
        let found = authority(context, self).await?;
        found.ok_or_else(|| ActionError::Failed(format!("the cluster `{}` has no CA; `pki_ca` creates one", self.name)))
    }

    /// Root's credential, which stays in the state folder for other tools: a certificate, or a password.
    pub async fn root(&self, context: &ActionContext) -> Result<Credential, ActionError> {
        let authority = self.authority(context).await?;
        let credential = Credential { authority: authority.trusted.clone(), ..Credential::default() };
        match self.auth.method() {
            AuthMethod::Certificate => {
                let root = self.client(context, &authority, "root").await?;
                Ok(Credential { identity: Some((root.certificate, root.key)), ..credential })
            }
            AuthMethod::Password => {
                let password = self.root_password(context).await?;
                let identity = self.admission(context, &authority, "root").await;
                Ok(Credential { login: Some(("root".into(), password)), identity, ..credential })
            }
        }
    }

    /// Root's client for each member.
    pub async fn clients(&self, context: &ActionContext) -> Result<Vec<MemberClient>, ActionError> {
        let credential = self.root(context).await?;
        self.clients_with(context, &credential)
    }

    /// A client for each member that is good for asking whether it serves: a login would need the majority that may be lost, and
    /// that a read is refused is answer enough.
    pub async fn onlookers(&self, context: &ActionContext) -> Result<Vec<MemberClient>, ActionError> {
        let credential = match self.auth.method() {
            AuthMethod::Certificate => self.root(context).await?,
            AuthMethod::Password => self.stranger(context).await?,
        };
        self.clients_with(context, &credential)
    }

    /// A client for each member, with some other credential.
    pub fn clients_with(
        &self,
        context: &ActionContext,
        credential: &Credential,
    ) -> Result<Vec<MemberClient>, ActionError> {
        self.clients_at(context, self.client_port, credential)
    }

    /// A client for each member, each through that member's own host. One that the inventory has no more is reached from where the
    /// task runs.
    pub fn clients_at(
        &self,
        context: &ActionContext,
        port: u16,
        credential: &Credential,
    ) -> Result<Vec<MemberClient>, ActionError> {
        let client = |member: &Member| {
            let session = context.reach.session(&member.name, &context.session);
            let here = || context.session.link.session(context.session.surroundings.clone());
            let session = session.unwrap_or_else(here);
            MemberClient::new(&member.name, &member.ip, port, credential, tunnel(session)).map_err(etcd_failed)
        };
        self.members.iter().map(client).collect()
    }

    /// The credential of nobody in particular.
    pub async fn stranger(&self, context: &ActionContext) -> Result<Credential, ActionError> {
        let authority = self.authority(context).await?;
        let credential = Credential { authority: authority.trusted.clone(), ..Credential::default() };
        if self.auth.method() == AuthMethod::Password {
            let identity = self.admission(context, &authority, STRANGER).await;
            return Ok(Credential { identity, ..credential });
        }
        let stranger = self.client(context, &authority, STRANGER).await?;
        Ok(Credential { identity: Some((stranger.certificate, stranger.key)), ..credential })
    }

    /// A certificate next to a password. A server of ours that wants passwords does not ask for it; one that was adopted does, until it
    /// has its turn. Without it that server says so.
    async fn admission(
        &self,
        context: &ActionContext,
        authority: &Authority,
        user: &str,
    ) -> Option<(String, Zeroizing<String>)> {
        // A `sign_command` may take its time, or need a person, for what no server may ask for. One that is there costs nothing.
        if !authority.has_key() {
            let keeping = Keeping { store: &self.store(context), opener: context.opener.as_ref() };
            let (certificate, key) = keeping.valid_client(user).ok().flatten()?;
            context.masker.add(&key);
            return Some((certificate, key));
        }
        let client = self.client(context, authority, user).await;
        let client = client.inspect_err(|error| tracing::debug!(%error, "no certificate next to the password")).ok()?;
        Some((client.certificate, client.key))
    }

    async fn client(&self, context: &ActionContext, authority: &Authority, user: &str) -> Result<Client, ActionError> {
        let renewal = if context.check_mode() { Renewal::ForNow } else { Renewal::IfNeeded };
        let store = self.store(context);
        let keeping = Keeping { store: &store, opener: context.opener.as_ref() };
        let client = authority.client(user, &self.tls, &keeping, renewal).await.map_err(failed)?;
        context.masker.add(&client.key);
        Ok(client)
    }

    /// The password that root has: the one that is kept here, unless etcd knows a newer one already. It is that of the inventory, or
    /// made up, where there is none yet.
    pub async fn root_password(&self, context: &ActionContext) -> Result<Zeroizing<String>, ActionError> {
        let store = self.store(context);
        let keeping = Keeping { store: &store, opener: context.opener.as_ref() };
        let kept = keeping.password("root").map_err(failed)?;
        let next = keeping.password(NEXT_ROOT).map_err(failed)?;
        let given = self.auth.root_password.clone().map(Zeroizing::new);
        for password in [&kept, &next, &given].into_iter().flatten() {
            context.masker.add(password);
        }
        let Some(kept) = kept else {
            let password = given.unwrap_or_else(made_up);
            self.keep_root_password(context, &password)?;
            return Ok(password);
        };
        if !context.check_mode()
            && let Err(error) = keeping.seal_plain(&self.tls.ca, "root")
        {
            tracing::warn!(%error, "root's password stays unencrypted");
        }
        for newer in [next, given].into_iter().flatten().filter(|newer| *newer != kept) {
            if self.lets_root_in(context, &newer).await? {
                self.keep_root_password(context, &newer)?;
                return Ok(newer);
            }
        }
        Ok(kept)
    }

    /// Another password for root, kept before anybody hears of it.
    pub fn next_root_password(&self, context: &ActionContext) -> Result<Zeroizing<String>, ActionError> {
        let password = made_up();
        context.masker.add(&password);
        if !context.check_mode() {
            let keeping = Keeping { store: &self.store(context), opener: context.opener.as_ref() };
            keeping.keep_password(&self.tls.ca, NEXT_ROOT, &password).map_err(failed)?;
        }
        Ok(password)
    }

    /// Root has this one now.
    pub fn keep_root_password(&self, context: &ActionContext, password: &str) -> Result<(), ActionError> {
        context.masker.add(password);
        if context.check_mode() {
            return Ok(());
        }
        let store = self.store(context);
        let keeping = Keeping { store: &store, opener: context.opener.as_ref() };
        keeping.keep_password(&self.tls.ca, "root", password).map_err(failed)?;
        store.forget_password(NEXT_ROOT).map_err(failed)
    }

    /// Whether etcd knows this password. If nobody can tell, the old one is as good as any.
    async fn lets_root_in(&self, context: &ActionContext, password: &str) -> Result<bool, ActionError> {
        let stranger = self.stranger(context).await?;
        for client in self.clients_with(context, &stranger)? {
            if let Ok(answer) = client.accepts("root", password).await {
                return Ok(answer);
            }
        }
        Ok(false)
    }
}

fn made_up() -> Zeroizing<String> {
    Zeroizing::new(rand::rng().sample_iter(Alphanumeric).take(32).map(char::from).collect())
}

/// Connects from the member's own host.
struct Tunnel(Session);

#[async_trait]
impl Dial for Tunnel {
    async fn dial(&self, host: &str, port: u16) -> io::Result<Box<dyn Stream>> {
        if self.0.link.is_local() {
            let stream = tokio::net::TcpStream::connect((host, port)).await?;
            return Ok(Box::new(stream));
        }
        let tunnel = self.0.open_tcp(host, port).await.map_err(|error| io::Error::other(error.to_string()))?;
        Ok(Box::new(tunnel))
    }
}

/// Connections from the host that a session is on.
pub fn tunnel(session: Session) -> Arc<dyn Dial> {
    Arc::new(Tunnel(session))
}

/// The lock is on the hosts; etcd itself does not know of it. So it is looked at before etcd is told anything.
pub(crate) async fn fence(context: &ActionContext) -> Result<(), ActionError> {
    context.run(Payload::new("")).await.map(drop)
}

/// A look at the cluster, as soon as it has a leader.
pub(crate) async fn led(clients: &[MemberClient]) -> Observation {
    const LIMIT: Duration = Duration::from_secs(10);
    settled(|| observe(clients, LIMIT), |now| now.leader().is_some()).await
}

/// The client of the member that leads.
pub(crate) fn leader<'a>(clients: &'a [MemberClient], now: &Observation) -> Result<&'a MemberClient, ActionError> {
    let leader = now.leader().and_then(|(name, _)| clients.iter().find(|client| *client.name == *name));
    leader.ok_or_else(|| {
        ActionError::Failed("there is no leader: wait for the election to end, or repair the members".into())
    })
}

pub(crate) fn etcd_failed(error: EtcdError) -> ActionError {
    ActionError::Failed(error.to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::{etcd::order::EtcdOrder, support::testing::module_error};

    #[test]
    fn what_is_no_cluster_is_told_with_what_would_be_one() {
        let told = |yaml: &str| module_error::<EtcdOrder>(yaml, &json!({}));
        // As a template may render, which the loader cannot know.
        assert_eq!(told("cluster: prod"), "`cluster` takes a mapping, found the string \"prod\"");
        assert_eq!(told("cluster: {members: []}"), "`cluster` has no `name`");
        assert_eq!(
            told("cluster: {name: prod, members: [{name: a}]}"),
            "the member `a` has no address that etcd could bind"
        );
    }
}
