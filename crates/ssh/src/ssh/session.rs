//! Our half of the protocol: what russh calls back, and how it is tuned.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};
use std::time::Duration;

use russh::client::{ChannelOpenHandle, DisconnectReason, Msg, Session};
use russh::keys::{Algorithm, PublicKeyOrCertificate};
use russh::{Channel, Preferred, SshId};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::host_key::Checker;
use super::{Options, SshError};

/// russh stops a transfer that has more than twice this in flight when it renews its keys, so the
/// window is larger than one busy channel needs.
const WINDOW: u32 = 4 << 20;
/// The largest payload that every server must take.
const PACKET: u32 = 32 * 1024;

pub(super) fn client_config(
    options: &Options,
    (keys, certificates): (Vec<Algorithm>, Vec<Algorithm>),
) -> russh::client::Config {
    russh::client::Config {
        client_id: SshId::Standard(concat!("SSH-2.0-etcdrun_", env!("CARGO_PKG_VERSION")).into()),
        window_size: WINDOW,
        maximum_packet_size: PACKET,
        keepalive_interval: Some(options.keepalive_interval),
        keepalive_max: options.keepalive_max,
        nodelay: true,
        preferred: Preferred {
            key: keys.into(),
            host_key_certificates: certificates.into(),
            // Nearly all cost is in the cipher: the hardware's AES beats ChaCha20 by far.
            cipher: vec![
                russh::cipher::AES_256_GCM,
                russh::cipher::CHACHA20_POLY1305,
                russh::cipher::AES_256_CTR,
                russh::cipher::AES_192_CTR,
                russh::cipher::AES_128_CTR,
            ]
            .into(),
            compression: vec![russh::compression::NONE].into(),
            ..Preferred::DEFAULT
        },
        ..russh::client::Config::default()
    }
}

/// What is known about the life of a connection, for everyone who holds a part of it.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// Cancelled when the connection is gone, whatever the reason.
    pub closed: CancellationToken,
    reason: OnceLock<String>,
}

impl Life {
    pub fn end(&self, reason: impl Into<String>) {
        let _ = self.reason.set(reason.into());
    }

    pub fn reason(&self) -> String {
        let unknown = || "the connection was closed".to_owned();
        self.reason.get().cloned().unwrap_or_else(unknown)
    }

    pub fn ended_by_server(&self) -> Option<&str> {
        self.reason.get()?.strip_prefix(SERVER_SAID)
    }
}

const SERVER_SAID: &str = "the server said: ";

/// Called by russh from the task that owns the connection.
pub(super) struct Client {
    checker: Checker,
    life: Arc<Life>,
    /// Tells everyone when russh drops us, because that is when the connection has ended.
    _ended: DropGuard,
}

impl Client {
    pub fn new(checker: Checker, life: Arc<Life>) -> Self {
        Client { checker, _ended: life.closed.clone().drop_guard(), life }
    }
}

/// An error of russh, or our own verdict on the host key.
#[derive(Debug)]
pub(super) enum ClientError {
    Transport(russh::Error),
    Refused(SshError),
}

impl From<russh::Error> for ClientError {
    fn from(error: russh::Error) -> Self {
        ClientError::Transport(error)
    }
}

impl russh::client::Handler for Client {
    type Error = ClientError;

    async fn check_server_key(&mut self, key: &PublicKeyOrCertificate) -> Result<bool, ClientError> {
        self.checker.check(key).map_err(ClientError::Refused)?;
        Ok(true)
    }

    // We never ask a server to open a channel: no forwarding, no agent, no X11. russh would accept them by itself, each for as long as
    // the connection lasts; a reply that is dropped is a refusal.

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        Ok(())
    }

    async fn server_channel_open_session(
        &mut self,
        _: Channel<Msg>,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _: Channel<Msg>,
        _: &str,
        _: u32,
        _: ChannelOpenHandle,
        _: &mut Session,
    ) -> Result<(), ClientError> {
        Ok(())
    }

    async fn disconnected(&mut self, reason: DisconnectReason<ClientError>) -> Result<(), ClientError> {
        self.life.end(match reason {
            DisconnectReason::ReceivedDisconnect(info) => {
                format!("{SERVER_SAID}{}", info.message.trim())
            }
            DisconnectReason::Error(ClientError::Refused(error)) => error.to_string(),
            DisconnectReason::Error(ClientError::Transport(error)) => describe(&error),
        });
        Ok(())
    }
}

/// russh's words for the usual ends of a connection, made plain.
pub(super) fn describe(error: &russh::Error) -> String {
    match error {
        russh::Error::KeepaliveTimeout => "the host no longer answers".to_owned(),
        russh::Error::HUP | russh::Error::Disconnect | russh::Error::SendError => {
            "the host closed the connection".to_owned()
        }
        russh::Error::IO(error) => match error.kind() {
            io::ErrorKind::UnexpectedEof => "the host closed the connection".to_owned(),
            _ => error.to_string(),
        },
        other => other.to_string(),
    }
}

/// Ends a connection whose peer has stopped reading.
///
/// russh sends no keepalives while a write is stuck, so without this a host that hangs in the
/// middle of an upload would hang us too. Any progress, however slow, starts the time anew.
pub(super) struct StallGuard<S> {
    stream: S,
    limit: Duration,
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<S> StallGuard<S> {
    pub fn new(stream: S, limit: Duration) -> Self {
        StallGuard { stream, limit, stuck: None }
    }

    fn watch<T>(&mut self, cx: &mut Context<'_>, outcome: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stuck = None;
            return outcome;
        }
        let limit = self.limit;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        match stuck.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the host no longer reads its input")))
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for StallGuard<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for StallGuard<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let outcome = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.watch(cx, outcome)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_shutdown(cx);
        self.watch(cx, outcome)
    }
}
