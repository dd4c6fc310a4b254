//! Proves to a server who we are: certificates first, then the agent's keys, then identity files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use russh::client::{AuthResult, Handle};
use russh::keys::agent::AgentIdentity;
use russh::keys::agent::client::AgentClient;
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{Algorithm, Certificate, HashAlg, PublicKey};
use russh::{MethodKind, MethodSet};

use super::error::NO_MORE_ATTEMPTS;
use super::identity::{self, AgentSigner, FileSigner, KeyFile, KeyRing, SignError};
use super::session::{Client, Life};
use super::{Resolved, SshError};

/// An agent may have to ask its owner to touch a token, so one step may take a while.
const STEP_TIMEOUT: Duration = Duration::from_secs(60);

/// Something to offer to the server.
pub(super) struct Candidate {
    label: String,
    offer: Offer,
    signer: SignWith,
}

#[derive(Clone)]
enum Offer {
    Key(PublicKey),
    Certificate(Box<Certificate>),
    /// An encrypted key that hides even its public half.
    Hidden,
}

#[derive(Clone)]
enum SignWith {
    Agent(PathBuf),
    File(Arc<KeyFile>),
}

/// Everything there is to offer to one host.
pub(super) struct Candidates {
    list: Vec<Candidate>,
    /// Keys that cannot be used. They matter only if nothing else works.
    problems: Vec<SshError>,
}

pub(super) enum AuthError {
    /// The server would take this key, but it is locked: hang up, ask for the passphrase, return.
    Locked(Arc<KeyFile>),
    Failed(SshError),
}

impl From<SshError> for AuthError {
    fn from(error: SshError) -> Self {
        AuthError::Failed(error)
    }
}

impl Candidates {
    /// Fails on what the inventory asks for and cannot have; anything else is only noted.
    pub async fn gather(resolved: &Resolved, ring: &KeyRing) -> Result<Self, SshError> {
        let mut found = Candidates { list: Vec::new(), problems: Vec::new() };
        let files = found.files(resolved, ring)?;
        let agent = match &resolved.agent_socket {
            Some(socket) => Some((socket.as_path(), ring.agent_identities(socket).await)),
            None => None,
        };
        let agent = agent.as_ref().map(|(socket, held)| Agent { socket, held });
        found.add_certificates(resolved, &files, agent.as_ref())?;
        found.add_keys(resolved, &files, agent.as_ref());
        Ok(found)
    }

    fn files(&mut self, resolved: &Resolved, ring: &KeyRing) -> Result<Vec<Arc<KeyFile>>, SshError> {
        let mut files = Vec::new();
        for (index, path) in resolved.identity_files.iter().enumerate() {
            let required = index < resolved.required_identities;
            match ring.file(path) {
                Ok(Some(file)) => files.push(file),
                Ok(None) if required => {
                    return Err(SshError::Key { path: path.clone(), problem: "does not exist".to_owned() });
                }
                Ok(None) => {}
                Err(error) if required => return Err(error),
                Err(error) => self.problems.push(error),
            }
        }
        Ok(files)
    }

    fn add_certificates(
        &mut self,
        resolved: &Resolved,
        files: &[Arc<KeyFile>],
        agent: Option<&Agent<'_>>,
    ) -> Result<(), SshError> {
        for path in &resolved.certificate_files {
            let certificate = identity::read_certificate(path)?;
            let holder = |file: &&Arc<KeyFile>| file.has_public(certificate.public_key());
            match (agent.and_then(|a| a.signer(certificate.public_key())), files.iter().find(holder)) {
                (Some(signer), _) => self.push_certificate(path, certificate, signer),
                (None, Some(file)) => {
                    self.push_certificate(path, certificate, SignWith::File(file.clone()));
                }
                (None, None) => self.problems.push(SshError::Key {
                    path: path.clone(),
                    problem: "is a certificate for a key that is neither in the agent nor in an identity file"
                        .to_owned(),
                }),
            }
        }
        if let Some(agent) = agent {
            for (certificate, comment) in agent.certificates() {
                let listed = files.iter().any(|file| file.has_public(certificate.public_key()));
                if listed || !resolved.identities_only {
                    let path = Path::new(comment);
                    self.push_certificate(path, certificate.clone(), agent.sign_with());
                }
            }
        }
        for file in files {
            if let Some(certificate) = file.certificate.clone() {
                let in_agent = agent.and_then(|agent| agent.signer(certificate.public_key()));
                let signer = in_agent.unwrap_or_else(|| SignWith::File(file.clone()));
                self.push_certificate(&file.path, certificate, signer);
            }
        }
        Ok(())
    }

    fn add_keys(&mut self, resolved: &Resolved, files: &[Arc<KeyFile>], agent: Option<&Agent<'_>>) {
        if let Some(agent) = agent {
            let listed = |key: &PublicKey| files.iter().any(|file| file.has_public(key.key_data()));
            let (first, others): (Vec<_>, Vec<_>) = agent.keys().partition(|(key, _)| listed(key));
            let others = others.into_iter().filter(|_| !resolved.identities_only);
            for (key, comment) in first.into_iter().chain(others) {
                self.list.push(Candidate {
                    label: format!("agent key {comment} ({})", kind(key)),
                    offer: Offer::Key(key.clone()),
                    signer: agent.sign_with(),
                });
            }
        }
        let in_agent = |file: &KeyFile| agent.is_some_and(|a| a.keys().any(|(key, _)| file.has_public(key.key_data())));
        for file in files {
            if file.is_public_only() || in_agent(file) {
                continue;
            }
            if let Some(Err(error)) = file.secret() {
                self.problems.push(error);
                continue;
            }
            let secret = file.secret().and_then(Result::ok);
            let public = file.public.clone();
            let public = public.or_else(|| Some(secret?.public_key().clone()));
            self.list.push(Candidate {
                label: file.path.display().to_string(),
                offer: public.map_or(Offer::Hidden, Offer::Key),
                signer: SignWith::File(file.clone()),
            });
        }
        // Asking for a passphrase blindly is the last resort.
        self.list.sort_by_key(|candidate| matches!(candidate.offer, Offer::Hidden));
    }

    fn push_certificate(&mut self, path: &Path, certificate: Certificate, signer: SignWith) {
        let same =
            |candidate: &Candidate| matches!(&candidate.offer, Offer::Certificate(known) if **known == certificate);
        if self.list.iter().any(same) {
            return;
        }
        if let SignWith::File(file) = &signer
            && let Some(Err(error)) = file.secret()
        {
            self.problems.push(error);
            return;
        }
        self.list.push(Candidate {
            label: format!("certificate {} \"{}\"", path.display(), certificate.key_id()),
            offer: Offer::Certificate(Box::new(certificate)),
            signer,
        });
    }
}

/// What an agent holds.
struct Agent<'a> {
    socket: &'a Path,
    held: &'a [AgentIdentity],
}

impl Agent<'_> {
    fn keys(&self) -> impl Iterator<Item = (&PublicKey, &str)> {
        self.held.iter().filter_map(|identity| match identity {
            AgentIdentity::PublicKey { key, comment } => Some((key, comment.as_str())),
            AgentIdentity::Certificate { .. } => None,
        })
    }

    fn certificates(&self) -> impl Iterator<Item = (&Certificate, &str)> {
        self.held.iter().filter_map(|identity| match identity {
            AgentIdentity::Certificate { certificate, comment } => Some((certificate, comment.as_str())),
            AgentIdentity::PublicKey { .. } => None,
        })
    }

    fn sign_with(&self) -> SignWith {
        SignWith::Agent(self.socket.to_owned())
    }

    /// This agent, if it can sign for the key.
    fn signer(&self, key: &KeyData) -> Option<SignWith> {
        let held = self.keys().any(|(held, _)| held.key_data() == key);
        held.then(|| self.sign_with())
    }
}

impl KeyFile {
    fn has_public(&self, key: &KeyData) -> bool {
        self.public.as_ref().is_some_and(|public| public.key_data() == key)
    }
}

fn kind(key: &PublicKey) -> String {
    key.algorithm().as_str().to_owned()
}

/// Offers one candidate after the other until the server is content.
pub(super) async fn authenticate(
    handle: &mut Handle<Client>,
    resolved: &Resolved,
    candidates: &Candidates,
    life: &Life,
) -> Result<(), AuthError> {
    let mut talk = Talk { handle, resolved, life, tried: Vec::new(), allowed: MethodSet::empty(), rsa_hash: None };
    for candidate in &candidates.list {
        if talk.offer(candidate).await? {
            return Ok(());
        }
        if !talk.allowed.is_empty() && !talk.allowed.contains(&MethodKind::PublicKey) {
            break;
        }
        if talk.handle.is_closed() {
            break;
        }
    }
    if candidates.list.is_empty() && talk.ask_without_key().await? {
        return Ok(());
    }
    Err(AuthError::Failed(talk.refusal(candidates)))
}

struct Talk<'a> {
    handle: &'a mut Handle<Client>,
    resolved: &'a Resolved,
    life: &'a Life,
    tried: Vec<String>,
    allowed: MethodSet,
    rsa_hash: Option<HashAlg>,
}

impl Talk<'_> {
    /// Whether the server let us in.
    async fn offer(&mut self, candidate: &Candidate) -> Result<bool, AuthError> {
        let hash = match candidate.offer.is_rsa() {
            true => Some(self.rsa_hash().await?),
            false => None,
        };
        let outcome = match tokio::time::timeout(STEP_TIMEOUT, self.try_sign(candidate, hash)).await {
            Ok(outcome) => outcome,
            Err(_) => return Err(AuthError::Failed(self.timeout())),
        };
        match outcome {
            Ok(AuthResult::Success) => Ok(true),
            Ok(AuthResult::Failure { remaining_methods, partial_success }) => {
                let partial = if partial_success { " (accepted, but not enough)" } else { "" };
                self.tried.push(format!("{}{partial}", candidate.label));
                if !remaining_methods.is_empty() {
                    self.allowed = remaining_methods;
                }
                Ok(false)
            }
            Err(SignError::Locked) => match &candidate.signer {
                SignWith::File(file) => Err(AuthError::Locked(file.clone())),
                SignWith::Agent(_) => Ok(false),
            },
            Err(SignError::Failed(problem)) => {
                self.tried.push(format!("{} ({problem})", candidate.label));
                Ok(false)
            }
            Err(SignError::Closed) => Err(AuthError::Failed(self.dropped())),
        }
    }

    async fn try_sign(&mut self, candidate: &Candidate, hash: Option<HashAlg>) -> Result<AuthResult, SignError> {
        match &candidate.signer {
            SignWith::File(file) => self.send(&candidate.offer, hash, &mut FileSigner(file)).await,
            SignWith::Agent(socket) => {
                let mut agent =
                    AgentClient::connect_uds(socket).await.map_err(|error| SignError::Failed(error.to_string()))?;
                if let Some(binding) = self.handle.agent_session_binding() {
                    // Old agents know no such binding, and most keys need none.
                    let _ = agent.bind_session(binding, false).await;
                }
                self.send(&candidate.offer, hash, &mut AgentSigner(agent)).await
            }
        }
    }

    async fn send<S: russh::Signer<Error = SignError>>(
        &mut self,
        offer: &Offer,
        hash: Option<HashAlg>,
        signer: &mut S,
    ) -> Result<AuthResult, SignError> {
        let user = &self.resolved.user;
        match offer.clone() {
            Offer::Key(key) => self.handle.authenticate_publickey_with(user, key, hash, signer).await,
            Offer::Certificate(certificate) => {
                self.handle.authenticate_certificate_with(user, *certificate, hash, signer).await
            }
            Offer::Hidden => Err(SignError::Locked),
        }
    }

    /// SHA-1 is never used, not even if the server has nothing else.
    async fn rsa_hash(&mut self) -> Result<HashAlg, SshError> {
        if let Some(hash) = self.rsa_hash {
            return Ok(hash);
        }
        let asked = self.handle.best_supported_rsa_hash().await;
        let best = asked.map_err(|_| self.dropped())?;
        let hash = best.flatten().unwrap_or(HashAlg::Sha256);
        self.rsa_hash = Some(hash);
        Ok(hash)
    }

    /// With no key at all, at least find out what the server would have wanted.
    async fn ask_without_key(&mut self) -> Result<bool, SshError> {
        let question = self.handle.authenticate_none(&self.resolved.user);
        match tokio::time::timeout(STEP_TIMEOUT, question).await {
            Err(_) => Err(self.timeout()),
            Ok(Err(_)) => Err(self.dropped()),
            Ok(Ok(AuthResult::Success)) => Ok(true),
            Ok(Ok(AuthResult::Failure { remaining_methods, .. })) => {
                self.allowed = remaining_methods;
                Ok(false)
            }
        }
    }

    fn refusal(&self, candidates: &Candidates) -> SshError {
        if self.handle.is_closed() && self.life.ended_by_server().is_none() {
            return self.dropped();
        }
        // A key that could not even be offered explains more than the ones that were refused.
        if let (true, Some(problem)) = (self.tried.is_empty(), candidates.problems.first()) {
            return problem.clone();
        }
        let unusable = candidates.problems.iter().map(|p| format!("({p})"));
        let methods: Vec<&str> = self.allowed.iter().map(<&str>::from).collect();
        let allowed = match (self.life.ended_by_server(), methods.is_empty()) {
            (Some(words), _) => format!("{NO_MORE_ATTEMPTS}: {words}"),
            (None, true) => "no method at all".to_owned(),
            (None, false) => methods.join(", "),
        };
        SshError::Auth {
            to: self.resolved.label(),
            user: self.resolved.user.clone(),
            tried: self.tried.iter().cloned().chain(unusable).collect(),
            allowed,
        }
    }

    fn timeout(&self) -> SshError {
        SshError::Timeout { to: self.resolved.label(), phase: "authentication", limit: STEP_TIMEOUT }
    }

    fn dropped(&self) -> SshError {
        SshError::Dropped { to: self.resolved.label(), reason: self.life.reason() }
    }
}

impl Offer {
    fn is_rsa(&self) -> bool {
        let algorithm = match self {
            Offer::Key(key) => key.algorithm(),
            Offer::Certificate(certificate) => certificate.algorithm(),
            Offer::Hidden => return false,
        };
        matches!(algorithm, Algorithm::Rsa { .. })
    }
}
