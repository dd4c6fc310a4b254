//! Encrypts what tasks left behind: registered results and facts can hold secrets.
//!
//! The key lies beside, readable by the owner only. So this does not protect from the owner; it keeps
//! secrets out of greps, backups of single files and what is sent along with a bug report.

use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, Nonce, RandomizedNonceKey};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use zeroize::Zeroizing;

use super::{StateError, write_private};
use crate::model::Outcome;

const KEY_BYTES: usize = 32;
const NONCE_BYTES: usize = 12;

pub struct Vault {
    key: RandomizedNonceKey,
}

impl std::fmt::Debug for Vault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Vault")
    }
}

impl Vault {
    /// Makes a key and keeps it at `path`.
    pub(super) fn create(path: &Path) -> Result<Self, StateError> {
        let key = Zeroizing::new(rand::random::<[u8; KEY_BYTES]>());
        write_private(path, Zeroizing::new(STANDARD.encode(*key)).as_bytes())?;
        Self::with(&*key, path)
    }

    /// A key that lies nowhere yet, and its text.
    pub(super) fn fresh(path: &Path) -> Result<(Self, Zeroizing<String>), StateError> {
        let key = Zeroizing::new(rand::random::<[u8; KEY_BYTES]>());
        Ok((Self::with(&*key, path)?, Zeroizing::new(STANDARD.encode(*key))))
    }

    pub(super) fn open(path: &Path) -> Result<Self, StateError> {
        let text = std::fs::read_to_string(path).map(Zeroizing::new).map_err(|error| StateError::io(path, &error))?;
        Self::of_key(&text, path)
    }

    pub(super) fn of_key(text: &str, path: &Path) -> Result<Self, StateError> {
        let key = STANDARD.decode(text.trim()).map(Zeroizing::new).unwrap_or_default();
        Self::with(&key, path)
    }

    fn with(key: &[u8], path: &Path) -> Result<Self, StateError> {
        let wrong = |_| StateError::Damaged { path: path.to_owned(), line: 1, problem: "it is not a key".to_owned() };
        Ok(Self { key: RandomizedNonceKey::new(&AES_256_GCM, key).map_err(wrong)? })
    }

    /// `None` if it cannot be done, which does not happen with results of a sane size.
    pub fn seal(&self, outcome: &Outcome) -> Option<String> {
        self.seal_bytes(serde_json::to_vec(outcome).ok()?)
    }

    pub(super) fn seal_bytes(&self, mut bytes: Vec<u8>) -> Option<String> {
        let nonce = self.key.seal_in_place_append_tag(Aad::empty(), &mut bytes).ok()?;
        Some(STANDARD.encode([&nonce.as_ref()[..], &bytes].concat()))
    }

    pub fn unseal(&self, text: &str) -> Option<Outcome> {
        serde_json::from_slice(&self.unseal_bytes(text)?).ok()
    }

    pub(super) fn unseal_bytes(&self, text: &str) -> Option<Zeroizing<Vec<u8>>> {
        let mut bytes = Zeroizing::new(STANDARD.decode(text).ok()?);
        let nonce = Nonce::try_assume_unique_for_key(bytes.get(..NONCE_BYTES)?).ok()?;
        let plain = self.key.open_in_place(nonce, Aad::empty(), &mut bytes[NONCE_BYTES..]).ok()?;
        Some(Zeroizing::new(plain.to_vec()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_sealed_can_be_read_with_its_key_only() {
        let folder = tempfile::tempdir().unwrap();
        let (first, other) = (folder.path().join("key"), folder.path().join("other"));
        let vault = Vault::create(&first).unwrap();
        let outcome = Outcome { stdout: "hunter2".into(), ..Outcome::changed() }.with("n", 1);
        let sealed = vault.seal(&outcome).unwrap();
        assert!(!sealed.contains("hunter2") && sealed != vault.seal(&outcome).unwrap());
        assert_eq!(Vault::open(&first).unwrap().unseal(&sealed), Some(outcome));
        assert_eq!(Vault::create(&other).unwrap().unseal(&sealed), None);
    }
}
