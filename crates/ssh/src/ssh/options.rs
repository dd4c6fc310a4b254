//! Settings of the transport as a whole, and how it asks for a passphrase.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use zeroize::Zeroizing;

/// Asks the operator for a secret. Called at most a few times per key file in a whole run.
#[async_trait]
pub trait Prompt: Send + Sync {
    /// `None` means that nobody is there to ask, or that the operator declined.
    async fn secret(&self, question: &str) -> Option<Zeroizing<String>>;
}

/// Nobody is there to ask.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoPrompt;

#[async_trait]
impl Prompt for NoPrompt {
    async fn secret(&self, _question: &str) -> Option<Zeroizing<String>> {
        None
    }
}

#[derive(Clone)]
pub struct Options {
    /// The one SSH configuration file to read. `None` reads `~/.ssh/config`, then
    /// `/etc/ssh/ssh_config`.
    pub config_file: Option<PathBuf>,
    /// Trust and record host keys that were never seen; changed and revoked ones still fail.
    pub accept_new: bool,
    /// The file of guests' keys.
    pub pins: Option<PathBuf>,
    /// For the TCP connection and the key exchange together, per attempt.
    pub connect_timeout: Duration,
    /// How often to try in all. Only failures to connect are tried again, never a refused key, nor a host that was silent all the
    /// time.
    pub connect_attempts: u32,
    /// How long the server may be silent before it is asked for a sign of life.
    pub keepalive_interval: Duration,
    /// How many such questions may go unanswered before the connection counts as dropped.
    pub keepalive_max: usize,
    /// Handshakes at once through one jump host: sshd drops connections beyond MaxStartups.
    pub handshakes_per_jump: usize,
    /// Sessions at once on one connection: sshd refuses more than MaxSessions (10 by default).
    pub sessions_per_connection: usize,
    pub prompt: Arc<dyn Prompt>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            config_file: None,
            accept_new: false,
            pins: None,
            connect_timeout: Duration::from_secs(10),
            connect_attempts: 3,
            keepalive_interval: Duration::from_secs(5),
            keepalive_max: 3,
            handshakes_per_jump: 5,
            sessions_per_connection: 8,
            prompt: Arc::new(NoPrompt),
        }
    }
}

impl std::fmt::Debug for Options {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Options")
            .field("config_file", &self.config_file)
            .field("accept_new", &self.accept_new)
            .field("connect_timeout", &self.connect_timeout)
            .field("connect_attempts", &self.connect_attempts)
            .finish_non_exhaustive()
    }
}
