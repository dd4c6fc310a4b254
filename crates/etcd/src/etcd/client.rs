//! A client of one member. Its channel goes through the SSH connection to that member's host, because the operator often has no
//! other way to it; what is large goes straight where it can.

use std::{sync::Arc, time::Duration};

use etcd_client::{Channel, Client, ConnectOptions};
use hyper_util::rt::TokioIo;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};
use zeroize::Zeroizing;

use super::{EtcdError, http};
use crate::{
    http::{Client as HttpClient, Dial, Direct},
    pki,
};

/// An emulated guest on a busy machine may take seconds for a handshake.
const CONNECT_LIMIT: Duration = Duration::from_secs(10);
/// A single call may take this long.
const CALL_LIMIT: Duration = Duration::from_secs(5);
/// How long a way straight to a member is looked for.
const STRAIGHT_LIMIT: Duration = Duration::from_secs(1);

/// What proves who we are, and who the members are.
#[derive(Clone, Default)]
pub struct Credential {
    /// The authority of the servers' certificates, in PEM.
    pub authority: String,
    /// Our certificate and its key, in PEM.
    pub identity: Option<(String, Zeroizing<String>)>,
    /// Our name and password.
    pub login: Option<(String, Zeroizing<String>)>,
}

/// One member, as a client sees it.
#[derive(Clone)]
pub struct MemberClient {
    pub name: Arc<str>,
    endpoint: Endpoint,
    channel: tonic::transport::Channel,
    limit: Duration,
    address: Arc<str>,
    port: u16,
    http: HttpClient,
    dial: Arc<dyn Dial>,
    login: Option<(String, Zeroizing<String>)>,
}

impl MemberClient {
    /// Connects when it is first used, and again whenever the connection was lost.
    pub fn new(
        name: &str,
        address: &str,
        port: u16,
        credential: &Credential,
        dial: Arc<dyn Dial>,
    ) -> Result<Self, EtcdError> {
        let wrong = |error: tonic::transport::Error| EtcdError::Certificates(innermost(&error));
        let mut tls =
            ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&credential.authority)).domain_name(address);
        if let Some((certificate, key)) = &credential.identity {
            tls = tls.identity(Identity::from_pem(certificate, key.as_bytes()));
        }
        let endpoint = Endpoint::from_shared(url(address, port))
            .map_err(wrong)?
            .tls_config(tls)
            .map_err(wrong)?
            .connect_timeout(CONNECT_LIMIT)
            .timeout(CALL_LIMIT);
        let address: Arc<str> = address.into();
        let channel = channel(&endpoint, &address, port, &dial);
        let (http, login) = (http::client(credential)?, credential.login.clone());
        Ok(Self { name: name.into(), endpoint, channel, limit: CALL_LIMIT, address, port, http, dial, login })
    }

    /// The same member, for calls that may take longer; over a connection of its own, which may take as long.
    pub fn patient(&self, limit: Duration) -> Self {
        let endpoint = self.endpoint.clone().timeout(limit).connect_timeout(limit.max(CONNECT_LIMIT));
        let channel = channel(&endpoint, &self.address, self.port, &self.dial);
        Self { endpoint, channel, limit, ..self.clone() }
    }

    /// The same member over a connection of its own that does not go through SSH, if there is such a way and nobody else is at its
    /// end. TLS is the same on both ways, but on this one nothing is encrypted twice.
    pub async fn straight(&self) -> Option<Self> {
        let dial: Arc<dyn Dial> = Arc::new(Direct);
        let channel = channel(&self.endpoint, &self.address, self.port, &dial);
        let straight = Self { channel, dial, ..self.clone() };
        let ids = async { tokio::try_join!(self.id(), straight.id()) };
        let ids = tokio::time::timeout(STRAIGHT_LIMIT, ids).await.ok()?.ok()?;
        (ids.0 == ids.1).then_some(straight)
    }

    async fn id(&self) -> Result<u64, EtcdError> {
        let mut client = self.client().await?;
        let status = self.bounded(client.status()).await?;
        Ok(status.header().map_or(0, |header| header.member_id()))
    }

    /// A client that is logged in, where there is a login and etcd asks for one.
    pub async fn client(&self) -> Result<Client, EtcdError> {
        let login = self.login.as_ref();
        let options = login.map(|(name, password)| ConnectOptions::new().with_user(name.as_str(), password.as_str()));
        let channel = || Channel::Tonic(self.channel.clone());
        match self.bounded(Client::from_channel(channel(), options)).await {
            Err(error) if error.needs_no_login() => self.bounded(Client::from_channel(channel(), None)).await,
            client => client,
        }
    }

    /// Whether authentication is on: a login of nobody is refused for one reason or the other, before it is proposed.
    pub async fn authenticates(&self) -> Result<bool, EtcdError> {
        let nobody = ConnectOptions::new().with_user("etcdrun-nobody", "-");
        match self.bounded(Client::from_channel(Channel::Tonic(self.channel.clone()), Some(nobody))).await {
            Err(EtcdError::Refused { reason, .. }) => Ok(!reason.contains("authentication is not enabled")),
            Err(error) => Err(error),
            Ok(_) => Ok(true),
        }
    }

    /// Whether a user has this password. A wrong one is refused before anything is proposed.
    pub async fn accepts(&self, user: &str, password: &str) -> Result<bool, EtcdError> {
        let login = ConnectOptions::new().with_user(user, password);
        match self.bounded(Client::from_channel(Channel::Tonic(self.channel.clone()), Some(login))).await {
            Ok(_) => Ok(true),
            Err(EtcdError::Refused { reason, .. }) if reason.contains("invalid user ID or password") => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The body that the server answers at a path such as `/version` or `/health`.
    pub async fn get(&self, path: &str) -> Result<String, EtcdError> {
        http::get(&self.target(self.port), path).await
    }

    /// The certificate that a fresh handshake at one of the member's ports shows; the one for clients or that for peers.
    pub async fn served(&self, port: u16) -> Result<pki::Certificate, EtcdError> {
        http::served(&self.target(port)).await
    }

    fn target(&self, port: u16) -> http::Target<'_> {
        http::Target { member: &self.name, url: url(&self.address, port), client: &self.http, dial: &*self.dial }
    }

    /// One call, which ends in time.
    pub async fn bounded<T>(&self, call: impl Future<Output = Result<T, etcd_client::Error>>) -> Result<T, EtcdError> {
        let limit = CONNECT_LIMIT.max(self.limit) + self.limit;
        match tokio::time::timeout(limit, call).await {
            Ok(result) => result.map_err(|error| EtcdError::of(&self.name, &error)),
            Err(_) => Err(EtcdError::TimedOut { member: self.name.to_string(), limit }),
        }
    }
}

/// Where clients connect to.
pub fn url(host: &str, port: u16) -> String {
    if host.contains(':') { format!("https://[{host}]:{port}") } else { format!("https://{host}:{port}") }
}

fn channel(endpoint: &Endpoint, address: &Arc<str>, port: u16, dial: &Arc<dyn Dial>) -> tonic::transport::Channel {
    let way = (dial.clone(), address.clone());
    endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
        let (dial, address) = way.clone();
        async move { dial.dial(&address, port).await.map(TokioIo::new) }
    }))
}

fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
