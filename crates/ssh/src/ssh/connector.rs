//! Makes connections: direct, through jump hosts, or through a local command.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared};
use russh::ChannelOpenFailure;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

use super::auth::{self, AuthError, Candidates};
use super::config::{Config, Local};
use super::connection::{Connection, OpenError, Stream, refusal};
use super::host_key::Checker;
use super::identity::{KeyFile, KeyRing};
use super::known_hosts::KnownHosts;
use super::proxy::{self, CommandStream, Complaint};
use super::resolve::{Proxy, Resolved, Resolver};
use super::session::{self, Client, ClientError, Life, StallGuard};
use super::{Endpoint, Options, SshError};

/// Makes connections, and shares between them whatever need not be done twice: the SSH
/// configuration, known hosts, unlocked keys, and connections to jump hosts. Cheap to clone.
#[derive(Clone)]
pub struct Connector {
    shared: Arc<Common>,
    hosts: Arc<HashMap<String, Endpoint>>,
}

struct Common {
    options: Options,
    local: Local,
    config: Config,
    known: Arc<KnownHosts>,
    ring: KeyRing,
    jumps: Mutex<HashMap<String, Arc<JumpHost>>>,
}

/// The connections to one jump host.
struct JumpHost {
    /// Made by whoever comes first; everyone else waits for the same attempt.
    connection: Mutex<Option<Attempt>>,
    handshakes: Arc<Semaphore>,
    /// Further connections, for relays: each of those takes up a session.
    relays: tokio::sync::Mutex<Vec<Connection>>,
}

/// What takes too long where nobody is.
const DIALLING: &str = "connecting";

type Attempt = Shared<BoxFuture<'static, Result<Connection, Arc<SshError>>>>;

/// A byte stream to the host, before any SSH is spoken on it.
struct Route {
    stream: Box<dyn Stream>,
    via: Option<Connection>,
    complaint: Option<Complaint>,
}

enum Failure {
    Locked(Arc<KeyFile>),
    Failed(SshError),
}

impl From<SshError> for Failure {
    fn from(error: SshError) -> Self {
        Failure::Failed(error)
    }
}

impl Connector {
    /// Reads the SSH configuration. Everything else is read when it is first needed.
    pub fn new(options: Options) -> Result<Self, SshError> {
        let local = Local::from_env();
        let config = match &options.config_file {
            Some(path) => Config::load_file(path, &local)?,
            None => Config::load_default(&local)?,
        };
        let common = Common {
            ring: KeyRing::new(options.prompt.clone()),
            options,
            local,
            config,
            known: Arc::default(),
            jumps: Mutex::default(),
        };
        Ok(Connector { shared: Arc::new(common), hosts: Arc::default() })
    }

    /// The same connector, for which jump hosts may be named as the inventory names them.
    pub fn with_hosts(&self, hosts: impl IntoIterator<Item = Endpoint>) -> Self {
        let named = hosts.into_iter().map(|host| (host.name.clone(), host));
        Connector { shared: self.shared.clone(), hosts: Arc::new(named.collect()) }
    }

    /// The settings that a connection to this endpoint would use.
    pub fn resolve(&self, endpoint: &Endpoint) -> Result<Resolved, SshError> {
        let resolver = Resolver {
            config: &self.shared.config,
            local: &self.shared.local,
            hosts: &self.hosts,
            connect_timeout: self.shared.options.connect_timeout,
            accept_new: self.shared.options.accept_new,
            pins: self.shared.options.pins.as_deref(),
        };
        resolver.resolve(endpoint)
    }

    pub async fn connect(&self, endpoint: &Endpoint) -> Result<Connection, SshError> {
        let resolved = self.resolve(endpoint)?;
        self.shared.clone().connect(resolved).await
    }
}

impl Common {
    /// Boxed, because a jump host is connected to in just the same way.
    fn connect(self: Arc<Self>, to: Resolved) -> BoxFuture<'static, Result<Connection, SshError>> {
        async move {
            let mut attempt = 1;
            loop {
                let failure = match self.attempt(&to).await {
                    Ok(connection) => return Ok(connection),
                    Err(failure) => failure,
                };
                match failure {
                    // Does not count: a person was asked, and each key is asked for only once.
                    Failure::Locked(key) => key.unlock(&self.ring).await,
                    Failure::Failed(error) if attempt < self.options.connect_attempts && may_retry(&error) => {
                        tracing::debug!(%error, attempt, "trying again to connect");
                        tokio::time::sleep(backoff(attempt)).await;
                        attempt += 1;
                    }
                    Failure::Failed(error) => return Err(error),
                }
            }
        }
        .boxed()
    }

    async fn attempt(self: &Arc<Self>, to: &Resolved) -> Result<Connection, Failure> {
        self.refuse_stranger(to)?;
        let candidates = Candidates::gather(to, &self.ring).await?;
        let _turn = match &to.proxy {
            Proxy::Jump(chain) => self.jump_host(chain).handshakes.clone().acquire_owned().await.ok(),
            _ => None,
        };
        let route = self.route(to).await?;
        let complaint = route.complaint.clone();
        match self.handshake(to, route, &candidates).await {
            Ok(connection) => Ok(connection),
            Err(failure) => Err(explain(failure, complaint.as_ref()).await),
        }
    }

    async fn handshake(&self, to: &Resolved, route: Route, candidates: &Candidates) -> Result<Connection, Failure> {
        let checker = self.checker(to);
        let config = session::client_config(&self.options, checker.algorithms()?);
        let life = Arc::new(Life::default());
        let client = Client::new(checker, life.clone());
        let unanswered = u32::try_from(self.options.keepalive_max).unwrap_or(u32::MAX);
        let patience = self.options.keepalive_interval.saturating_mul(unanswered.saturating_add(1));
        let stream = StallGuard::new(route.stream, patience);
        let exchange = russh::client::connect_stream(Arc::new(config), stream, client);
        let mut handle = match tokio::time::timeout(to.connect_timeout, exchange).await {
            Ok(Ok(handle)) => handle,
            Ok(Err(ClientError::Refused(error))) => return Err(error.into()),
            Ok(Err(ClientError::Transport(error))) => return Err(transport_error(to, &error).into()),
            Err(_) => return Err(timeout(to, "key exchange").into()),
        };
        match auth::authenticate(&mut handle, to, candidates, &life).await {
            Ok(()) => {}
            Err(AuthError::Locked(key)) => return Err(Failure::Locked(key)),
            Err(AuthError::Failed(error)) => return Err(Failure::Failed(error)),
        }
        let sessions = self.options.sessions_per_connection;
        Ok(Connection::new(handle, life, to.label(), sessions, route.via))
    }

    /// A guest that nobody has met yet is none that could be believed, whatever answers at its address. Mostly nothing does, and
    /// that would take long to find out.
    fn refuse_stranger(&self, to: &Resolved) -> Result<(), SshError> {
        if !to.is_pinned || self.checker(to).knows_it()? {
            return Ok(());
        }
        let name = to.host_key_alias.clone().unwrap_or_default();
        let pins = to.user_known_hosts.first().cloned().unwrap_or_default();
        Err(SshError::Unlearnt { to: to.label(), name, pins })
    }

    fn checker(&self, to: &Resolved) -> Checker {
        let (name, fallback_name) = Checker::names(&to.address, to.port, to.host_key_alias.as_deref());
        Checker {
            known: self.known.clone(),
            host: to.label(),
            principal: to.host_key_alias.clone().unwrap_or_else(|| to.address.clone()),
            name,
            fallback_name,
            user_files: to.user_known_hosts.clone(),
            global_files: to.global_known_hosts.clone(),
            accept_new: to.accept_new,
        }
    }

    async fn route(self: &Arc<Self>, to: &Resolved) -> Result<Route, SshError> {
        match &to.proxy {
            Proxy::Direct => dial(to).await,
            Proxy::Command(command) => {
                let started = CommandStream::start(command);
                let (stream, complaint) = started.map_err(|error| SshError::Connect {
                    to: to.label(),
                    reason: format!("its ProxyCommand cannot be run: {error}"),
                })?;
                Ok(Route { stream: Box::new(stream), via: None, complaint: Some(complaint) })
            }
            Proxy::Jump(chain) => self.jump(to, chain).await,
        }
    }

    async fn jump(self: &Arc<Self>, to: &Resolved, chain: &[Resolved]) -> Result<Route, SshError> {
        let host = self.jump_host(chain);
        let connection = self.jump_connection(&host, chain).await?;
        let opened = connection.open_tcp_within(&to.address, to.port, to.connect_timeout).await;
        match opened {
            Ok(tunnel) => Ok(Route { stream: Box::new(tunnel), via: Some(connection), complaint: None }),
            // The jump host waits for the one behind it, who is silent.
            Err(OpenError::Failed(SshError::Timeout { .. })) => Err(via(chain, Arc::new(timeout(to, DIALLING)))),
            Err(OpenError::Failed(error)) => Err(error),
            Err(OpenError::Refused(ChannelOpenFailure::AdministrativelyProhibited)) => {
                self.relay(to, &host, chain, connection).await
            }
            Err(OpenError::Refused(why)) => Err(SshError::Tunnel {
                via: connection.label().to_owned(),
                to: to.label(),
                reason: refusal(&why).to_owned(),
            }),
        }
    }

    /// Where forwarding is forbidden, a command on the jump host carries the bytes.
    async fn relay(
        self: &Arc<Self>,
        to: &Resolved,
        host: &JumpHost,
        chain: &[Resolved],
        first: Connection,
    ) -> Result<Route, SshError> {
        let command = proxy::relay_command(&to.address, to.port).ok_or_else(|| SshError::Tunnel {
            via: first.label().to_owned(),
            to: to.label(),
            reason: "it forbids forwarding, and this address cannot go through a shell".to_owned(),
        })?;
        let mut relays = host.relays.lock().await;
        relays.retain(|connection| !connection.is_closed());
        for connection in std::iter::once(&first).chain(relays.iter()) {
            if let Some(exec) = connection.try_exec(&command).await? {
                return Ok(relay_route(exec, connection.clone()));
            }
        }
        // Every session of every connection is taken by a relay: one more connection, then.
        let connection = self.clone().connect(last_hop(chain)?).await;
        let connection = connection.map_err(|error| via(chain, Arc::new(error)))?;
        relays.push(connection.clone());
        let exec = connection.exec(&command).await?;
        Ok(relay_route(exec, connection))
    }

    fn jump_host(&self, chain: &[Resolved]) -> Arc<JumpHost> {
        let hops: Vec<String> = chain.iter().map(Resolved::target).collect();
        let mut jumps = self.jumps.lock().unwrap_or_else(PoisonError::into_inner);
        let limit = self.options.handshakes_per_jump.max(1);
        let fresh = || {
            Arc::new(JumpHost {
                connection: Mutex::default(),
                handshakes: Arc::new(Semaphore::new(limit)),
                relays: tokio::sync::Mutex::default(),
            })
        };
        jumps.entry(hops.join(" ")).or_insert_with(fresh).clone()
    }

    async fn jump_connection(self: &Arc<Self>, host: &JumpHost, chain: &[Resolved]) -> Result<Connection, SshError> {
        let attempt = {
            let mut current = host.connection.lock().unwrap_or_else(PoisonError::into_inner);
            match current.as_ref().filter(|attempt| is_usable(attempt)) {
                Some(attempt) => attempt.clone(),
                None => {
                    // In a task of its own: it must not stop half-way when those who wait give up.
                    let connecting = tokio::spawn(self.clone().connect(last_hop(chain)?));
                    let attempt = connecting.map(joined).boxed().shared();
                    *current = Some(attempt.clone());
                    attempt
                }
            }
        };
        attempt.await.map_err(|error| via(chain, error))
    }
}

fn joined(outcome: Result<Result<Connection, SshError>, tokio::task::JoinError>) -> Result<Connection, Arc<SshError>> {
    let outcome = outcome.unwrap_or_else(|error| {
        Err(SshError::Connect { to: "the jump host".to_owned(), reason: format!("the attempt was aborted: {error}") })
    });
    outcome.map_err(Arc::new)
}

/// An attempt under way, or a connection that still stands. A failure is not kept: whoever comes
/// after it may have more luck.
fn is_usable(attempt: &Attempt) -> bool {
    match attempt.peek() {
        None => true,
        Some(Ok(connection)) => !connection.is_closed(),
        Some(Err(_)) => false,
    }
}

/// The last hop of a chain, to be reached through those before it.
fn last_hop(chain: &[Resolved]) -> Result<Resolved, SshError> {
    let Some((last, before)) = chain.split_last() else {
        return Err(SshError::BadEndpoint { host: String::new(), problem: "its jump chain is empty".to_owned() });
    };
    let mut last = last.clone();
    if !before.is_empty() {
        last.proxy = Proxy::Jump(before.to_vec());
    }
    Ok(last)
}

fn via(chain: &[Resolved], source: Arc<SshError>) -> SshError {
    SshError::Jump { via: chain.last().map_or_else(String::new, Resolved::label), source }
}

fn relay_route(exec: super::Exec, connection: Connection) -> Route {
    let (stream, complaint) = proxy::relay_stream(exec);
    Route { stream: Box::new(stream), via: Some(connection), complaint: Some(complaint) }
}

async fn dial(to: &Resolved) -> Result<Route, SshError> {
    let failed = |reason: String| SshError::Connect { to: to.label(), reason };
    let connecting = TcpStream::connect((to.address.as_str(), to.port));
    let stream = match tokio::time::timeout(to.connect_timeout, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(failed(error.to_string())),
        Err(_) => return Err(timeout(to, DIALLING)),
    };
    stream.set_nodelay(true).map_err(|error| failed(error.to_string()))?;
    Ok(Route { stream: Box::new(stream), via: None, complaint: None })
}

fn timeout(to: &Resolved, phase: &'static str) -> SshError {
    SshError::Timeout { to: to.label(), phase, limit: to.connect_timeout }
}

fn transport_error(to: &Resolved, error: &russh::Error) -> SshError {
    let (to, reason) = (to.label(), session::describe(error));
    match error {
        russh::Error::NoCommonAlgo { kind, theirs, .. } => {
            SshError::Protocol { to, reason: format!("no common {kind:?} algorithm, it offers {}", theirs.join(", ")) }
        }
        russh::Error::WrongServerSig | russh::Error::StrictKeyExchangeViolation { .. } => {
            SshError::Protocol { to, reason }
        }
        _ => SshError::Connect { to, reason },
    }
}

/// A helper that failed usually says why, and better than the stream that ended with it.
async fn explain(failure: Failure, complaint: Option<&Complaint>) -> Failure {
    let (Failure::Failed(SshError::Connect { to, reason }), Some(complaint)) = (&failure, complaint) else {
        return failure;
    };
    match complaint.text().await {
        None => failure,
        Some(words) => Failure::Failed(SshError::Connect { to: to.clone(), reason: format!("{reason} ({words})") }),
    }
}

/// Only where nothing was decided yet: a refused key stays refused. Jump hosts retry by themselves. A host that was silent all the
/// time is not asked again: the kernel has done so meanwhile, and whoever waits knows by now.
fn may_retry(error: &SshError) -> bool {
    !matches!(error, SshError::Jump { .. } | SshError::Timeout { phase: DIALLING, .. }) && error.is_unreachable()
}

/// Doubles from half a second, half of it by chance, so that many hosts do not retry in step.
fn backoff(attempt: u32) -> Duration {
    let base = 500u64.saturating_mul(1 << attempt.min(5).saturating_sub(1));
    Duration::from_millis(base / 2 + rand::random_range(0..=base / 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_silent_is_not_asked_again() {
        let timeout = |phase| SshError::Timeout { to: "h".into(), phase, limit: Duration::from_secs(10) };
        assert!(!may_retry(&timeout(DIALLING)));
        // One that began to answer may be quicker next time.
        assert!(may_retry(&timeout("key exchange")));
        assert!(may_retry(&SshError::Connect { to: "h".into(), reason: "Connection refused".into() }));
        let name = "c/h".to_owned();
        assert!(!may_retry(&SshError::Unlearnt { to: "h".into(), name, pins: "known_hosts".into() }));
    }
}
