//! An authenticated connection: sessions for commands, tunnels for TCP.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use russh::client::{Handle, Msg};
use russh::{Channel, ChannelOpenFailure, Disconnect};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::SshError;
use super::exec::{Exec, Size};
use super::session::{Client, Life};

/// How long a server that still answers keepalives may take to open a channel.
const OPEN_TIMEOUT: Duration = Duration::from_secs(30);
/// Pauses before a refused session is tried again: sshd frees a session a moment after it ended.
const SESSION_RETRIES: [u64; 5] = [20, 50, 100, 200, 400];
/// And longer ones where no session is ours to wait for: commands we gave up may still hold theirs.
const LAST_RETRIES: [u64; 3] = [500, 1000, 2000];

/// A connection to one host. Clones share it; it ends with the last of them.
#[derive(Clone)]
pub struct Connection {
    inner: Arc<Inner>,
}

struct Inner {
    handle: Handle<Client>,
    life: Arc<Life>,
    label: String,
    sessions: Arc<Semaphore>,
    open_sessions: AtomicUsize,
    /// The jump host's connection must live as long as the stream that runs through it.
    _via: Option<Connection>,
}

/// The right to one session; given back when the session is over on the server too.
pub(super) struct SessionLease {
    pub connection: Connection,
    _permit: OwnedSemaphorePermit,
}

impl Drop for SessionLease {
    fn drop(&mut self) {
        self.connection.inner.open_sessions.fetch_sub(1, Ordering::SeqCst);
    }
}

enum Open {
    Session,
    Tcp { host: String, port: u16 },
}

/// Why a channel did not open.
pub(super) enum OpenError {
    Refused(ChannelOpenFailure),
    Failed(SshError),
}

impl Connection {
    pub(super) fn new(
        handle: Handle<Client>,
        life: Arc<Life>,
        label: String,
        sessions: usize,
        via: Option<Connection>,
    ) -> Self {
        Connection {
            inner: Arc::new(Inner {
                handle,
                life,
                label,
                sessions: Arc::new(Semaphore::new(sessions.max(1))),
                open_sessions: AtomicUsize::new(0),
                _via: via,
            }),
        }
    }

    /// Starts a command. Waits for a free session where the limit is reached.
    pub async fn exec(&self, command: &str) -> Result<Exec, SshError> {
        loop {
            let permit = self.permit().await?;
            if let Some(exec) = self.exec_with(permit, command).await? {
                return Ok(exec);
            }
        }
    }

    /// Starts a command, or the user's own shell, at a terminal.
    pub async fn terminal(&self, command: Option<&str>, kind: &str, size: Size) -> Result<Exec, SshError> {
        let permit = self.permit().await?;
        let channel = self.open_session(&SESSION_RETRIES).await?.ok_or_else(|| SshError::ExecRefused {
            to: self.inner.label.clone(),
            reason: "it opens no session (see MaxSessions in its sshd_config)".to_owned(),
        })?;
        self.inner.open_sessions.fetch_add(1, Ordering::SeqCst);
        let exec = Exec::new(channel, SessionLease { connection: self.clone(), _permit: permit });
        exec.request_terminal(command, kind, size).await?;
        Ok(exec)
    }

    /// Starts a command if a session is free right now.
    pub async fn try_exec(&self, command: &str) -> Result<Option<Exec>, SshError> {
        match self.inner.sessions.clone().try_acquire_owned() {
            Ok(permit) => self.exec_with(permit, command).await,
            Err(_) => Ok(None),
        }
    }

    async fn permit(&self) -> Result<OwnedSemaphorePermit, SshError> {
        tokio::select! {
            permit = self.inner.sessions.clone().acquire_owned() => permit.map_err(|_| self.dropped()),
            () = self.closed() => Err(self.dropped()),
        }
    }

    /// `None` means that the server takes fewer sessions than we thought: wait for one of ours.
    async fn exec_with(&self, permit: OwnedSemaphorePermit, command: &str) -> Result<Option<Exec>, SshError> {
        if let Some(channel) = self.open_session(&SESSION_RETRIES).await? {
            return self.start(channel, permit, command).await.map(Some);
        }
        if self.inner.open_sessions.load(Ordering::SeqCst) > 0 {
            permit.forget();
            return Ok(None);
        }
        match self.open_session(&LAST_RETRIES).await? {
            Some(channel) => self.start(channel, permit, command).await.map(Some),
            None => Err(SshError::ExecRefused {
                to: self.inner.label.clone(),
                reason: "it opens no session (see MaxSessions in its sshd_config)".to_owned(),
            }),
        }
    }

    /// `None` if the server keeps refusing after these pauses, in milliseconds.
    async fn open_session(&self, pauses: &[u64]) -> Result<Option<Channel<Msg>>, SshError> {
        for pause in pauses {
            match self.open(Open::Session, OPEN_TIMEOUT).await {
                Ok(channel) => return Ok(Some(channel)),
                Err(OpenError::Failed(error)) => return Err(error),
                Err(OpenError::Refused(_)) => tokio::time::sleep(Duration::from_millis(*pause)).await,
            }
        }
        Ok(None)
    }

    async fn start(
        &self,
        channel: Channel<Msg>,
        permit: OwnedSemaphorePermit,
        command: &str,
    ) -> Result<Exec, SshError> {
        self.inner.open_sessions.fetch_add(1, Ordering::SeqCst);
        let lease = SessionLease { connection: self.clone(), _permit: permit };
        // The answer is read later, so that a command costs one round trip less.
        let exec = Exec::new(channel, lease);
        exec.request(command).await?;
        Ok(exec)
    }

    /// A TCP connection from the host to somewhere it can reach.
    pub async fn open_tcp(&self, host: &str, port: u16) -> Result<TcpTunnel, SshError> {
        match self.open_tcp_within(host, port, OPEN_TIMEOUT).await {
            Ok(tunnel) => Ok(tunnel),
            Err(OpenError::Failed(error)) => Err(error),
            Err(OpenError::Refused(why)) => Err(SshError::Tunnel {
                via: self.inner.label.clone(),
                to: format!("{host}:{port}"),
                reason: refusal(&why).to_owned(),
            }),
        }
    }

    /// Whether a new connection can be opened from there; nothing if that cannot be known, such as where forwarding is forbidden. What
    /// takes longer than the limit is not reached.
    pub async fn reaches(&self, host: &str, port: u16, limit: Duration) -> Option<bool> {
        match self.open_tcp_within(host, port, limit).await {
            Ok(_) => Some(true),
            Err(
                OpenError::Refused(ChannelOpenFailure::ConnectFailed) | OpenError::Failed(SshError::Timeout { .. }),
            ) => Some(false),
            Err(_) => None,
        }
    }

    pub(super) async fn open_tcp_within(&self, host: &str, port: u16, limit: Duration) -> Result<TcpTunnel, OpenError> {
        let target = Open::Tcp { host: host.to_owned(), port };
        let channel = self.open(target, limit).await?;
        Ok(TcpTunnel { stream: Box::new(channel.into_stream()), _connection: self.clone() })
    }

    /// Opens a channel. In a task of its own: if the caller gives up first, a channel that opens
    /// later must still be closed.
    async fn open(&self, what: Open, limit: Duration) -> Result<Channel<Msg>, OpenError> {
        let (reply, answer) = oneshot::channel();
        let inner = self.inner.clone();
        tokio::spawn(async move {
            let outcome = match what {
                Open::Session => inner.handle.channel_open_session().await,
                Open::Tcp { host, port } => {
                    let opened = inner.handle.channel_open_direct_tcpip(host, port.into(), "127.0.0.1", 0);
                    opened.await
                }
            };
            if let Err(Ok(unwanted)) = reply.send(outcome) {
                let _ = unwanted.close().await;
            }
        });
        tokio::select! {
            outcome = answer => match outcome {
                Ok(Ok(channel)) => Ok(channel),
                Ok(Err(russh::Error::ChannelOpenFailure(why))) => Err(OpenError::Refused(why)),
                Ok(Err(_)) | Err(_) => {
                    self.settle().await;
                    Err(OpenError::Failed(self.dropped()))
                }
            },
            () = self.closed() => Err(OpenError::Failed(self.dropped())),
            () = tokio::time::sleep(limit) => Err(OpenError::Failed(SshError::Timeout {
                to: self.inner.label.clone(),
                phase: "opening a channel",
                limit,
            })),
        }
    }

    pub fn is_closed(&self) -> bool {
        self.inner.handle.is_closed() || self.inner.life.closed.is_cancelled()
    }

    /// Resolves when the connection is gone.
    pub async fn closed(&self) {
        self.inner.life.closed.cancelled().await;
    }

    /// Says goodbye and waits a moment for the connection to end.
    pub async fn disconnect(&self) {
        self.inner.life.end("we closed the connection");
        let goodbye = self.inner.handle.disconnect(Disconnect::ByApplication, "", "");
        let _ = tokio::time::timeout(Duration::from_secs(1), goodbye).await;
        let _ = tokio::time::timeout(Duration::from_secs(1), self.closed()).await;
    }

    /// How messages call the host at the other end.
    pub fn label(&self) -> &str {
        &self.inner.label
    }

    pub(super) fn dropped(&self) -> SshError {
        SshError::Dropped { to: self.inner.label.clone(), reason: self.inner.life.reason() }
    }

    /// Lets the reason for an end that is under way become known.
    pub(super) async fn settle(&self) {
        let _ = tokio::time::timeout(Duration::from_millis(200), self.closed()).await;
    }

    /// A round trip: whatever the server had sent before it has arrived when this returns.
    pub(super) async fn ping(&self, limit: Duration) {
        let _ = tokio::time::timeout(limit, self.inner.handle.send_ping()).await;
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").field("to", &self.inner.label).finish_non_exhaustive()
    }
}

pub(super) fn refusal(why: &ChannelOpenFailure) -> &'static str {
    match why {
        ChannelOpenFailure::AdministrativelyProhibited => "it forbids forwarding",
        ChannelOpenFailure::ConnectFailed => "the connection failed there",
        ChannelOpenFailure::ResourceShortage => "it is short of resources",
        _ => "it does not support this kind of tunnel",
    }
}

/// Any two-way stream.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// A TCP stream that runs through a host. Dropping it closes it.
///
/// It must be read: what nobody reads holds up everything else on the connection.
pub struct TcpTunnel {
    stream: Box<dyn Stream>,
    _connection: Connection,
}

impl std::fmt::Debug for TcpTunnel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TcpTunnel")
    }
}

impl AsyncRead for TcpTunnel {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl AsyncWrite for TcpTunnel {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
