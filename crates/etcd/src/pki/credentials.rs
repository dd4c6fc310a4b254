//! What lets a user into a cluster: the key of a certificate, or a password. On the disk both are encrypted, to those who can open
//! the key of the CA. Everything that needs one gets it here.
//!
//! Files that an earlier version wrote are plain. They are read as they are, and encrypted by the next run that uses them; so are
//! those of a host that only takes backups, and stay: nothing is there that could open them.

use std::path::Path;

use zeroize::Zeroizing;

use super::{
    Keeping, PkiError,
    authority::{open_key, recipients},
};
use crate::{
    inventory::sections::CaSection,
    secret::{Form, seal},
    source::is_sealed,
};

impl Keeping<'_> {
    /// A user's certificate and key, if both are there.
    pub fn client(&self, user: &str) -> Result<Option<(String, Zeroizing<String>)>, PkiError> {
        let certificate = self.store.client_certificate(user)?;
        Ok(certificate.zip(self.opened(&self.store.client_paths(user).1)?))
    }

    /// The key first: a certificate whose key is missing is of no use.
    pub fn keep_client(&self, ca: &CaSection, user: &str, certificate: &str, key: &str) -> Result<(), PkiError> {
        let (certificate_path, key_path) = self.store.client_paths(user);
        self.write_sealed(ca, &key_path, key.as_bytes())?;
        self.store.write(&certificate_path, certificate.as_bytes())
    }

    pub fn password(&self, user: &str) -> Result<Option<Zeroizing<String>>, PkiError> {
        let text = self.opened(&self.store.password_path(user))?;
        Ok(text.map(|text| Zeroizing::new(text.trim_end().to_owned())))
    }

    pub fn keep_password(&self, ca: &CaSection, user: &str, password: &str) -> Result<(), PkiError> {
        self.write_sealed(ca, &self.store.password_path(user), password.as_bytes())
    }

    /// Encrypts what is still plain of a user's. A file is replaced as a whole, so there is the old one or the new one at any time.
    pub fn seal_plain(&self, ca: &CaSection, user: &str) -> Result<(), PkiError> {
        for path in [self.store.client_paths(user).1, self.store.password_path(user)] {
            if let Some(bytes) = self.store.read(&path)?.filter(|bytes| !is_sealed(bytes)) {
                self.write_sealed(ca, &path, &bytes)?;
            }
        }
        Ok(())
    }

    fn opened(&self, path: &Path) -> Result<Option<Zeroizing<String>>, PkiError> {
        self.store.read(path)?.map(|bytes| open_key(&bytes, path, self.opener)).transpose()
    }

    fn write_sealed(&self, ca: &CaSection, path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
        let sealed = seal(bytes, &recipients(ca, self)?, Form::Armored).map_err(PkiError::new)?;
        self.store.write(path, &sealed)
    }
}
