//! The way to one target: a connection made when first needed, and again after it was lost.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::sync::{Mutex, OnceCell};
use zeroize::Zeroizing;

use super::{
    Fence, RemoteError, Session, Surroundings,
    channel::{ChannelError, Input, Output, start_local},
    error::Trouble,
    ledger,
    script::{Become, Library, Reads, command_line, local_arguments},
    shell::{Shell, Shells},
    sudo::{self, Sudo},
    transfer::Staging,
};
use crate::{
    model::Masker,
    ssh::{Connection, Connector, Endpoint, Exec, SshError},
};

/// What carries scripts to a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    #[default]
    Ssh,
    /// Nothing is sent, and every step goes well. Tells what all the rest costs.
    Nowhere,
}

/// Settings of a link, the same for all tasks on it.
#[derive(Clone, Default)]
pub struct LinkOptions {
    /// For sudo, where it asks.
    pub become_password: Option<Zeroizing<String>>,
    /// For steps that have no time-out of their own.
    pub command_timeout: Option<Duration>,
    /// Knows the secrets that must not show on a target.
    pub masker: Masker,
    pub transport: Transport,
}

/// One target. Shared by all tasks on it; connects once, and again after the connection was lost.
pub struct Link {
    route: Route,
    pub(super) options: LinkOptions,
    state: std::sync::Mutex<State>,
    /// Held by who connects or disconnects.
    connecting: Mutex<()>,
    /// Attempts to connect that have come to an end.
    attempts: AtomicU64,
    execs: AtomicU64,
    /// Shells there that wait for a script.
    pub(super) shells: Shells,
    /// What sudo wants, by the user to become.
    sudo: std::sync::Mutex<HashMap<Arc<str>, Arc<OnceCell<Sudo>>>>,
    pub(super) staging: Staging,
    /// For whom steps have left a ledger, by run and user.
    ledgers: std::sync::Mutex<HashSet<LedgerOf>>,
    /// Locks that changes on this target must still hold.
    fences: std::sync::RwLock<Arc<Vec<Fence>>>,
}

/// A run, and the user that its steps became.
type LedgerOf = (Arc<str>, Option<Arc<str>>);

enum Route {
    Ssh {
        connector: Connector,
        endpoint: Box<Endpoint>,
    },
    /// A shell on this machine and the arguments in front of its own, as in `busybox sh`.
    Local {
        shell: Vec<String>,
    },
}

#[derive(Default)]
struct State {
    connection: Option<Connection>,
    /// The last failure, and which attempt that was.
    failure: Option<(u64, SshError)>,
}

impl Link {
    pub fn new(connector: Connector, endpoint: Endpoint, options: LinkOptions) -> Arc<Self> {
        Self::by(Route::Ssh { connector, endpoint: Box::new(endpoint) }, options)
    }

    /// A target that is this machine. `shell` is a command line such as `["busybox", "sh"]`.
    pub fn local(shell: &[&str], options: LinkOptions) -> Arc<Self> {
        Self::by(Route::Local { shell: shell.iter().map(|&word| word.to_owned()).collect() }, options)
    }

    fn by(route: Route, options: LinkOptions) -> Arc<Self> {
        Arc::new(Self {
            route,
            options,
            state: std::sync::Mutex::default(),
            connecting: Mutex::default(),
            attempts: AtomicU64::new(0),
            execs: AtomicU64::new(0),
            shells: Shells::default(),
            sudo: std::sync::Mutex::default(),
            staging: Staging::default(),
            ledgers: std::sync::Mutex::default(),
            fences: std::sync::RwLock::default(),
        })
    }

    /// The link as a task with these surroundings uses it.
    pub fn session(self: &Arc<Self>, surroundings: Surroundings) -> Session {
        Session { link: self.clone(), surroundings, fenced: false }
    }

    /// Whether the target is this machine.
    pub fn is_local(&self) -> bool {
        matches!(self.route, Route::Local { .. })
    }

    /// The same, or it is reached over loopback: what it writes may be what we read.
    pub fn is_this_machine(&self) -> bool {
        match &self.route {
            Route::Local { .. } => true,
            Route::Ssh { endpoint, .. } => {
                let address = endpoint.address.as_deref().unwrap_or(&endpoint.name);
                let is_loopback = |address: std::net::IpAddr| address.is_loopback();
                address == "localhost" || address.parse().is_ok_and(is_loopback)
            }
        }
    }

    /// How many scripts the target was sent so far.
    pub fn execs(&self) -> u64 {
        self.execs.load(Ordering::SeqCst)
    }

    pub fn is_connected(&self) -> bool {
        self.connected().is_some()
    }

    fn connected(&self) -> Option<Connection> {
        self.state().connection.as_ref().filter(|connection| !connection.is_closed()).cloned()
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The connection. Makes one if there is none; callers that come meanwhile share the attempt.
    ///
    /// It is made in a task of its own: who asks may stop asking without going away, as etcd's clients do with a connection that
    /// took too long, and whoever waits for the same one would wait for ever.
    pub async fn connection(self: &Arc<Self>) -> Result<Connection, RemoteError> {
        if let Some(connection) = self.connected() {
            return Ok(connection);
        }
        let (link, seen) = (self.clone(), self.attempts.load(Ordering::SeqCst));
        let attempt = tokio::spawn(async move { link.connect(seen).await }).await;
        attempt.unwrap_or_else(|error| Err(RemoteError::Unreachable(error.to_string().into())))
    }

    async fn connect(&self, seen: u64) -> Result<Connection, RemoteError> {
        let Route::Ssh { connector, endpoint } = &self.route else {
            return Err(RemoteError::Unreachable("this machine is not reached over SSH".into()));
        };
        let _alone = self.connecting.lock().await;
        if let Some(connection) = self.connected() {
            return Ok(connection);
        }
        // An attempt that failed while we waited for it is our answer too.
        if let Some((_, error)) = self.state().failure.as_ref().filter(|(attempt, _)| *attempt > seen) {
            return Err(unreachable(error));
        }
        let connected = connector.connect(endpoint).await;
        let attempt = self.attempts.fetch_add(1, Ordering::SeqCst) + 1;
        let answer = connected.clone().map_err(|error| unreachable(&error));
        *self.state() = match connected {
            Ok(connection) => State { connection: Some(connection), failure: None },
            Err(error) => State { connection: None, failure: Some((attempt, error)) },
        };
        answer
    }

    /// Drops the connection, if there is one, and makes a new one.
    pub async fn reconnect(self: &Arc<Self>) -> Result<Connection, RemoteError> {
        self.disconnect().await;
        self.connection().await
    }

    async fn disconnect(self: &Arc<Self>) {
        self.shells.clear();
        let link = self.clone();
        let ended = tokio::spawn(async move {
            let _alone = link.connecting.lock().await;
            let connection = link.state().connection.take();
            if let Some(connection) = connection {
                connection.disconnect().await;
            }
        });
        let _ = ended.await;
    }

    /// Removes what was staged on the target, then disconnects.
    pub async fn close(self: &Arc<Self>) {
        let reachable = self.is_local() || self.is_connected();
        if reachable {
            self.staging.remove(self).await;
        }
        self.disconnect().await;
    }

    /// From now on, changes here need these locks too.
    pub fn add_fences(&self, fences: &[Fence]) {
        let mut all = self.fences.write().unwrap_or_else(PoisonError::into_inner);
        Arc::make_mut(&mut all).extend_from_slice(fences);
    }

    /// Another machine is behind it now: what the old one has granted or kept is gone, and so is the way to it.
    pub async fn leads_elsewhere(self: &Arc<Self>) {
        *self.fences.write().unwrap_or_else(PoisonError::into_inner) = Arc::default();
        self.ledgers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.disconnect().await;
    }

    pub(super) fn fences(&self) -> Arc<Vec<Fence>> {
        self.fences.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn note_ledger(&self, run: &Arc<str>, user: Option<&Arc<str>>) {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.insert((run.clone(), user.cloned()));
    }

    pub(super) fn ledger_is_gone(&self, run: &str, user: Option<&Arc<str>>) {
        let mut ledgers = self.ledgers.lock().unwrap_or_else(PoisonError::into_inner);
        ledgers.retain(|(of, by)| &**of != run || by.as_ref() != user);
    }

    /// Removes what steps that must not run twice have left. For when nobody will ask for them again.
    pub async fn forget_ledgers(self: &Arc<Self>) {
        let ledgers = std::mem::take(&mut *self.ledgers.lock().unwrap_or_else(PoisonError::into_inner));
        for (run, user) in ledgers {
            ledger::forget(self, &run, user).await;
        }
    }

    /// A shell that waits for a script: one that has stayed, or a new one. Those that stay read nothing but scripts.
    pub(super) async fn shell(self: &Arc<Self>, as_whom: Become<'_>, reads: Reads) -> Result<Shell, RemoteError> {
        if reads == Reads::Scripts
            && let Some(shell) = self.shells.take(as_whom).await
        {
            self.execs.fetch_add(1, Ordering::SeqCst);
            return Ok(shell);
        }
        let (input, output) = self.start(as_whom, reads).await?;
        Ok(Shell { input, output, used: false, library: Library::default() })
    }

    /// Starts a shell, which does nothing until it has read a whole script.
    pub(super) async fn start(
        self: &Arc<Self>,
        as_whom: Become<'_>,
        reads: Reads,
    ) -> Result<(Input, Output), RemoteError> {
        self.execs.fetch_add(1, Ordering::SeqCst);
        let Route::Local { shell } = &self.route else {
            return self.start_over_ssh(&command_line(as_whom, reads)).await;
        };
        let command;
        let mut arguments: Vec<&str> = shell.iter().map(String::as_str).collect();
        match as_whom {
            Become::Nobody => arguments.extend(local_arguments(reads)),
            _ => {
                command = command_line(as_whom, reads);
                arguments.extend(["-c", &command]);
            }
        }
        let (program, arguments) = arguments.split_first().unwrap_or((&"sh", &[]));
        start_local(program, arguments).map_err(|error| RemoteError::Unreachable(error.to_string().into()))
    }

    async fn start_over_ssh(self: &Arc<Self>, command: &str) -> Result<(Input, Output), RemoteError> {
        let was_connected = self.is_connected();
        let connection = self.connection().await?;
        let exec = match self.exec(&connection, command).await {
            // It had died unnoticed. Nothing was sent yet, so a new one may try.
            Err(error) if was_connected && error.is_unreachable() && connection.is_closed() => {
                let connection = self.connection().await?;
                self.exec(&connection, command).await
            }
            other => other,
        };
        let (writer, reader) = exec.map_err(|error| unreachable(&error))?.split();
        Ok((Input::Ssh(writer), Output::Ssh(reader)))
    }

    /// Where there is no free session, shells that have nothing to do give theirs.
    async fn exec(&self, connection: &Connection, command: &str) -> Result<Exec, SshError> {
        if let Some(exec) = connection.try_exec(command).await? {
            return Ok(exec);
        }
        let _waiting = self.shells.make_room();
        connection.exec(command).await
    }

    /// How to become a user here. Asks sudo once, and only if there is a password to offer.
    pub(super) async fn becoming<'a>(self: &Arc<Self>, user: Option<&'a Arc<str>>) -> Result<Become<'a>, RemoteError> {
        let Some(user) = user else { return Ok(Become::Nobody) };
        let Some(password) = &self.options.become_password else { return Ok(Become::Silently(user)) };
        let cell = {
            let mut known = self.sudo.lock().unwrap_or_else(PoisonError::into_inner);
            known.entry(user.clone()).or_default().clone()
        };
        Ok(match cell.get_or_try_init(|| sudo::probe(self, user, password)).await? {
            Sudo::IsSilent => Become::Silently(user),
            Sudo::WantsPassword => Become::WithPassword(user),
        })
    }
}

fn unreachable(error: &SshError) -> RemoteError {
    RemoteError::Unreachable(Trouble::from(error))
}

impl From<ChannelError> for Trouble {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Ssh(error) => Trouble::from(&error),
            ChannelError::Local(_) => Trouble::new(error.to_string()),
        }
    }
}
