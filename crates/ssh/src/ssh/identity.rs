//! Private keys on disk and in agents: found, unlocked at most once, and used to sign.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::signature::Signer as _;
use russh::keys::ssh_encoding::Encode as _;
use russh::keys::ssh_key::private::KeypairData;
use russh::keys::{Certificate, HashAlg, PrivateKey, PublicKey};
use tokio::sync::OnceCell;
use zeroize::Zeroizing;

use super::SshError;
use super::options::Prompt;

/// How often a wrong passphrase may be typed, as with ssh.
const PASSPHRASE_TRIES: usize = 3;
/// Listing its keys takes an agent no time, unless it hangs.
const AGENT_TIMEOUT: Duration = Duration::from_secs(10);

/// All key files and agents of a run.
pub(super) struct KeyRing {
    prompt: Arc<dyn Prompt>,
    /// One question at a time, however many connections wait.
    asking: tokio::sync::Mutex<()>,
    files: Mutex<HashMap<PathBuf, Loaded>>,
    agents: Mutex<HashMap<PathBuf, Held>>,
}

/// What came of reading a file; `None` if there is none.
type Loaded = Result<Option<Arc<KeyFile>>, SshError>;
/// What an agent holds, once it was asked.
type Held = Arc<OnceCell<Arc<[AgentIdentity]>>>;

/// One identity file.
pub(super) struct KeyFile {
    pub path: PathBuf,
    /// Absent only for an encrypted key in a format that hides it, without a `.pub` beside it.
    pub public: Option<PublicKey>,
    /// From `PATH-cert.pub`.
    pub certificate: Option<Certificate>,
    secret: Secret,
}

enum Secret {
    /// Only the public half is here; an agent may have the rest.
    Elsewhere,
    Open(Arc<PrivateKey>),
    Encrypted {
        text: Zeroizing<String>,
        unlocked: OnceCell<Result<Arc<PrivateKey>, SshError>>,
    },
}

impl KeyRing {
    pub fn new(prompt: Arc<dyn Prompt>) -> Self {
        KeyRing { prompt, asking: tokio::sync::Mutex::new(()), files: Mutex::default(), agents: Mutex::default() }
    }

    /// The key in a file, or `None` if there is no such file. Read once per run.
    pub fn file(&self, path: &Path) -> Loaded {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let load = || Ok(load(path)?.map(Arc::new));
        files.entry(path.to_owned()).or_insert_with(load).clone()
    }

    /// What an agent holds; nothing if it cannot be reached. Asked once per run.
    pub async fn agent_identities(&self, socket: &Path) -> Arc<[AgentIdentity]> {
        let cell = {
            let mut agents = self.agents.lock().unwrap_or_else(PoisonError::into_inner);
            agents.entry(socket.to_owned()).or_default().clone()
        };
        let ask = || async {
            match list_agent(socket).await {
                Ok(identities) => identities.into(),
                Err(error) => {
                    tracing::debug!(socket = %socket.display(), %error, "no answer from ssh-agent");
                    Arc::from([])
                }
            }
        };
        cell.get_or_init(ask).await.clone()
    }
}

async fn list_agent(socket: &Path) -> Result<Vec<AgentIdentity>, russh::keys::Error> {
    let list = async { AgentClient::connect_uds(socket).await?.request_identities().await };
    match tokio::time::timeout(AGENT_TIMEOUT, list).await {
        Ok(listed) => listed,
        Err(_) => Err(std::io::Error::from(ErrorKind::TimedOut).into()),
    }
}

fn load(path: &Path) -> Result<Option<KeyFile>, SshError> {
    let problem = |problem: String| SshError::Key { path: path.to_owned(), problem };
    let text = match std::fs::read_to_string(path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Ok(load_public(path).map(|public| KeyFile {
                path: path.to_owned(),
                certificate: load_certificate(path),
                public: Some(public),
                secret: Secret::Elsewhere,
            }));
        }
        Err(error) if error.kind() == ErrorKind::InvalidData => {
            return Err(problem("is not a private key".to_owned()));
        }
        Err(error) => return Err(problem(format!("cannot be read: {error}"))),
    };
    if let Ok(public) = PublicKey::from_openssh(&text) {
        return Ok(Some(KeyFile {
            path: path.to_owned(),
            public: Some(public),
            certificate: None,
            secret: Secret::Elsewhere,
        }));
    }
    check_permissions(path).map_err(problem)?;
    let (public, secret) = match russh::keys::decode_secret_key(&text, None) {
        Ok(key) => (Some(key.public_key().clone()), Secret::Open(Arc::new(key))),
        Err(russh::keys::Error::KeyIsEncrypted) => encrypted(path, text),
        Err(_) if text.contains("ENCRYPTED") => encrypted(path, text),
        Err(error) => return Err(problem(format!("is not a usable private key: {error}"))),
    };
    Ok(Some(KeyFile { path: path.to_owned(), public, certificate: load_certificate(path), secret }))
}

fn encrypted(path: &Path, text: Zeroizing<String>) -> (Option<PublicKey>, Secret) {
    // OpenSSH's own format keeps the public half readable.
    let own = PrivateKey::from_openssh(text.as_bytes()).map(|key| key.public_key().clone());
    let secret = Secret::Encrypted { text, unlocked: OnceCell::new() };
    (own.ok().or_else(|| load_public(path)), secret)
}

fn load_public(path: &Path) -> Option<PublicKey> {
    let text = std::fs::read_to_string(with_suffix(path, ".pub")).ok()?;
    PublicKey::from_openssh(text.trim()).ok()
}

fn load_certificate(path: &Path) -> Option<Certificate> {
    read_certificate(&with_suffix(path, "-cert.pub")).ok()
}

pub(super) fn read_certificate(path: &Path) -> Result<Certificate, SshError> {
    let text = std::fs::read_to_string(path).map_err(|error| SshError::read(path, &error))?;
    Certificate::from_openssh(text.trim())
        .map_err(|error| SshError::Key { path: path.to_owned(), problem: format!("is not a certificate: {error}") })
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    PathBuf::from(name)
}

/// As ssh: a key of ours that others can read is a key of theirs too.
fn check_permissions(path: &Path) -> Result<(), String> {
    let Ok(metadata) = std::fs::metadata(path) else {
        return Ok(());
    };
    let mode = metadata.mode() & 0o7777;
    let ours = metadata.uid() == rustix::process::getuid().as_raw();
    if ours && metadata.is_file() && mode & 0o077 != 0 {
        return Err(format!("is readable by others (mode {mode:04o}); protect it with `chmod 600`"));
    }
    Ok(())
}

impl KeyFile {
    /// The private key, if it needs no passphrase or has had it. `None` means it is still locked.
    pub fn secret(&self) -> Option<Result<Arc<PrivateKey>, SshError>> {
        match &self.secret {
            Secret::Open(key) => Some(Ok(key.clone())),
            Secret::Encrypted { unlocked, .. } => unlocked.get().cloned(),
            Secret::Elsewhere => Some(Err(self.problem("has only its public half here"))),
        }
    }

    pub fn is_public_only(&self) -> bool {
        matches!(self.secret, Secret::Elsewhere)
    }

    /// Asks for the passphrase, once for all who wait, and keeps the outcome for good.
    pub async fn unlock(&self, ring: &KeyRing) {
        if let Secret::Encrypted { text, unlocked } = &self.secret {
            unlocked.get_or_init(|| self.ask(text, ring)).await;
        }
    }

    async fn ask(&self, text: &Zeroizing<String>, ring: &KeyRing) -> Result<Arc<PrivateKey>, SshError> {
        let _turn = ring.asking.lock().await;
        let path = self.path.display();
        let mut question = format!("Passphrase for key {path}: ");
        for _ in 0..PASSPHRASE_TRIES {
            let Some(passphrase) = ring.prompt.secret(&question).await else {
                return Err(self.problem("is encrypted, and no passphrase was given"));
            };
            if let Some(key) = decrypt(text.clone(), passphrase).await {
                return Ok(Arc::new(key));
            }
            question = format!("Wrong. Passphrase for key {path}: ");
        }
        Err(self.problem("is encrypted, and the passphrase was wrong"))
    }

    fn problem(&self, problem: &str) -> SshError {
        SshError::Key { path: self.path.clone(), problem: problem.to_owned() }
    }
}

/// Off the runtime's threads: the key derivation is slow on purpose.
async fn decrypt(text: Zeroizing<String>, passphrase: Zeroizing<String>) -> Option<PrivateKey> {
    let work = move || russh::keys::decode_secret_key(&text, Some(&passphrase)).ok();
    tokio::task::spawn_blocking(work).await.ok().flatten()
}

/// Why a signature could not be made.
#[derive(Debug)]
pub(super) enum SignError {
    /// The session ended in the meantime.
    Closed,
    /// The key wants a passphrase first. Nobody should type one while a server waits.
    Locked,
    Failed(String),
}

impl From<russh::SendError> for SignError {
    fn from(_: russh::SendError) -> Self {
        SignError::Closed
    }
}

/// Signs with a key from a file.
pub(super) struct FileSigner<'a>(pub &'a KeyFile);

impl russh::Signer for FileSigner<'_> {
    type Error = SignError;

    async fn auth_sign(
        &mut self,
        _key: &AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, SignError> {
        match self.0.secret() {
            None => Err(SignError::Locked),
            Some(Err(error)) => Err(SignError::Failed(error.to_string())),
            Some(Ok(key)) => sign(&key, hash, data).map_err(SignError::Failed),
        }
    }
}

/// The data with its signature behind it, as the protocol wants it.
fn sign(key: &PrivateKey, hash: Option<HashAlg>, mut data: Vec<u8>) -> Result<Vec<u8>, String> {
    let signature = match key.key_data() {
        KeypairData::Rsa(rsa) => (rsa, hash).try_sign(&data),
        other => other.try_sign(&data),
    };
    let signature = signature.map_err(|error| error.to_string())?;
    let mut blob = Vec::new();
    signature.encode(&mut blob).map_err(|error| error.to_string())?;
    blob.encode(&mut data).map_err(|error| error.to_string())?;
    Ok(data)
}

/// Signs by asking an agent.
pub(super) struct AgentSigner(pub AgentClient<tokio::net::UnixStream>);

impl russh::Signer for AgentSigner {
    type Error = SignError;

    async fn auth_sign(
        &mut self,
        key: &AgentIdentity,
        hash: Option<HashAlg>,
        data: Vec<u8>,
    ) -> Result<Vec<u8>, SignError> {
        let signed = self.0.sign_request(key, hash, data).await;
        signed.map_err(|error| SignError::Failed(error.to_string()))
    }
}
