//! Identity files: what age-keygen writes, the same behind a passphrase, and SSH keys.

use std::{
    path::Path,
    sync::{Mutex, PoisonError},
};

use age::{
    secrecy::{ExposeSecret, SecretString},
    ssh, x25519,
};
use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use zeroize::Zeroizing;

use super::{Stanza, keyring::Ask};
use crate::{
    digest::sha256,
    source::{OpenError, exposed, is_sealed},
};

/// One key that may open things.
pub(super) enum Identity {
    Age(x25519::Identity),
    Ssh(Box<ssh::Identity>),
    /// Asks for its passphrase, once, and only for what is encrypted to it.
    LockedSsh(Box<LockedSsh>),
}

pub(super) struct LockedSsh {
    key: ssh::EncryptedKey,
    path: String,
    public: String,
    /// How files name this key.
    stanza: Stanza,
    unlocked: Mutex<Option<Option<ssh::Identity>>>,
}

/// Why a file is no identity.
pub(super) enum Unusable {
    /// It is not there.
    Missing(std::io::Error),
    /// It is there, and wrong.
    Wrong(OpenError),
    /// Others can read it.
    Exposed(OpenError),
}

pub(super) fn load(
    path: &Path,
    passphrase: &dyn Fn(&str) -> Result<SecretString, OpenError>,
) -> Result<Vec<Identity>, Unusable> {
    let bytes = Zeroizing::new(std::fs::read(path).map_err(Unusable::Missing)?);
    let wrong = |what: &str, help: &str| Unusable::Wrong(OpenError::new(format!("{}: {what}", path.display()), help));
    if let Some(why) = exposed(path) {
        let help = "others who can read an identity can decrypt everything that you can";
        return Err(Unusable::Exposed(OpenError::new(format!("the identity file {} {why}", path.display()), help)));
    }
    if is_sealed(&bytes) {
        let opened =
            open_with_passphrase(&bytes, &passphrase(&format!("{}", path.display())).map_err(Unusable::Wrong)?);
        let opened = opened.map_err(|message| wrong(&message, "type the passphrase of this identity file"))?;
        let text = std::str::from_utf8(&opened).unwrap_or_default();
        return age_identities(text).ok_or_else(|| wrong("contains no identity", MAKE_ONE));
    }
    let text = std::str::from_utf8(&bytes).map_err(|_| wrong("is not an identity file", MAKE_ONE))?;
    if text.trim_start().starts_with("-----BEGIN") {
        return ssh_identity(path, text).map(|identity| vec![identity]).map_err(|what| wrong(&what, SSH_KINDS));
    }
    age_identities(text).ok_or_else(|| wrong("is not an identity file", MAKE_ONE))
}

const MAKE_ONE: &str = "`age-keygen -o FILE` creates an identity file; an SSH key without a FIDO token works as well";
const SSH_KINDS: &str = "age accepts SSH keys of the kinds ssh-ed25519 and ssh-rsa";

/// The lines of an age-keygen file; `None` if one is not an identity or there is none.
fn age_identities(text: &str) -> Option<Vec<Identity>> {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    let identities: Option<Vec<_>> = lines.map(|line| line.parse().ok().map(Identity::Age)).collect();
    identities.filter(|identities| !identities.is_empty())
}

fn ssh_identity(path: &Path, text: &str) -> Result<Identity, String> {
    let parsed = ssh::Identity::from_buffer(text.as_bytes(), None).map_err(|error| error.to_string())?;
    match parsed {
        ssh::Identity::Encrypted(key) => locked(path, text, key).map(|key| Identity::LockedSsh(Box::new(key))),
        ssh::Identity::Unsupported(_) => Err("is an SSH key of a kind that age does not accept".to_owned()),
        open => Ok(Identity::Ssh(Box::new(open))),
    }
}

fn locked(path: &Path, text: &str, key: ssh::EncryptedKey) -> Result<LockedSsh, String> {
    // The public half of an encrypted OpenSSH key is not encrypted.
    let private = russh::keys::PrivateKey::from_openssh(text).map_err(|error| error.to_string())?;
    let public = private.public_key();
    let wire = public.to_bytes().map_err(|error| error.to_string())?;
    let tag = STANDARD_NO_PAD.encode(&sha256(&wire)[..4]);
    let stanza = Stanza { kind: public.algorithm().as_str().to_owned(), tag: Some(tag) };
    let public = public.to_openssh().map_err(|error| error.to_string())?;
    Ok(LockedSsh { key, path: path.display().to_string(), public, stanza, unlocked: Mutex::default() })
}

impl LockedSsh {
    /// The key, if it is one of these and the person knows its passphrase.
    fn unlock(&self, stanzas: &[Stanza], ask: Option<&Ask>) -> Option<ssh::Identity> {
        if !stanzas.contains(&self.stanza) {
            return None;
        }
        let mut unlocked = self.unlocked.lock().unwrap_or_else(PoisonError::into_inner);
        let unlock = || {
            let passphrase = ask?(&format!("passphrase of {}: ", self.path))?;
            let passphrase = SecretString::from(passphrase.as_str().to_owned());
            self.key.decrypt(passphrase).ok().map(ssh::Identity::from)
        };
        unlocked.get_or_insert_with(unlock).clone()
    }
}

impl Identity {
    /// The key in the form that age takes, unless it stays locked.
    pub(super) fn usable(&self, stanzas: &[Stanza], ask: Option<&Ask>) -> Option<Box<dyn age::Identity>> {
        match self {
            Self::Age(identity) => Some(Box::new(identity.clone())),
            Self::Ssh(identity) => Some(identity.clone()),
            Self::LockedSsh(locked) => Some(Box::new(locked.unlock(stanzas, ask)?)),
        }
    }

    /// The public half, as a recipient is written.
    pub(super) fn public(&self) -> Option<String> {
        match self {
            Self::Age(identity) => Some(identity.to_public().to_string()),
            Self::Ssh(identity) => ssh::Recipient::try_from((**identity).clone()).ok().map(|key| key.to_string()),
            Self::LockedSsh(locked) => Some(locked.public.clone()),
        }
    }
}

/// Scrypt with a limit that a person's own files stay below and an attacker's do not.
const MAX_WORK_FACTOR: u8 = 22;

pub(super) fn open_with_passphrase(sealed: &[u8], passphrase: &SecretString) -> Result<Zeroizing<Vec<u8>>, String> {
    let mut identity = age::scrypt::Identity::new(SecretString::from(passphrase.expose_secret().to_owned()));
    identity.set_max_work_factor(MAX_WORK_FACTOR);
    open_with(sealed, &[Box::new(identity)]).map_err(|error| match error {
        age::DecryptError::ExcessiveWork { .. } => "it asks for more work than any passphrase is worth".to_owned(),
        age::DecryptError::KeyDecryptionFailed
        | age::DecryptError::DecryptionFailed
        | age::DecryptError::NoMatchingKeys => "the passphrase is wrong".to_owned(),
        other => other.to_string(),
    })
}

pub(super) fn open_with(
    sealed: &[u8],
    identities: &[Box<dyn age::Identity>],
) -> Result<Zeroizing<Vec<u8>>, age::DecryptError> {
    use std::io::Read;
    let decryptor = age::Decryptor::new(age::armor::ArmoredReader::new(sealed))?;
    let mut reader = decryptor.decrypt(identities.iter().map(|identity| &**identity))?;
    // As much as it can be, so that the vector never moves and leaves a copy behind.
    let mut opened = Zeroizing::new(Vec::with_capacity(sealed.len()));
    reader.read_to_end(&mut opened)?;
    Ok(opened)
}
