//! What lets a user into a cluster: the key of a certificate, or a password. On the disk both are encrypted, to those who can open
//! the key of the CA. Everything that needs one gets it here.
//!
//! Files that an earlier version wrote are plain. They are read as they are, and encrypted by the next run that uses them; so are
//! those of a host that only takes backups, and stay: nothing is there that could open them.

use std::path::Path;

use jiff::Timestamp;
use zeroize::Zeroizing;

use super::{
    Authority, Certificate, Keeping, PkiError, Renewal,
    authority::{open_key, recipients},
};
use crate::{
    etcd::Credential,
    inventory::sections::{AuthMethod, AuthSection, CaSection, TlsSection},
    secret::{Form, seal},
    source::is_sealed,
};

impl Keeping<'_> {
    /// Root's credential for a command that only looks: as the last run left it, or one that is not kept if that is missing or has
    /// expired. In a run, `Cluster::root` of the modules renews and keeps it instead.
    pub async fn root(&self, cluster: &str, tls: &TlsSection, auth: &AuthSection) -> Result<Credential, PkiError> {
        let no_authority = || {
            PkiError::new(format!("the cluster `{cluster}` has no CA here"))
                .help("`etcdrun playbook site.yaml` creates it; --state-dir names another directory")
        };
        let kept = self.store.trusted()?;
        let there = self.valid_client("root")?;
        if auth.method() == AuthMethod::Password {
            // Until it is played, another one in the inventory is only a wish.
            let password = match self.password("root")? {
                Some(password) => Some(password),
                None => auth.root_password.clone().map(Into::into),
            };
            let authority = kept.ok_or_else(no_authority)?;
            return Ok(Credential { authority, login: password.map(|it| ("root".into(), it)), identity: there });
        }
        if let (Some(authority), Some(identity)) = (kept, there) {
            return Ok(Credential { authority, identity: Some(identity), login: None });
        }
        let authority = Authority::open(tls, self)?.ok_or_else(no_authority)?;
        let root = authority.client("root", tls, self, Renewal::ForNow).await?;
        Ok(Credential { authority: authority.trusted, identity: Some((root.certificate, root.key)), login: None })
    }

    /// A user's certificate and key, if both are there.
    pub fn client(&self, user: &str) -> Result<Option<(String, Zeroizing<String>)>, PkiError> {
        let certificate = self.store.client_certificate(user)?;
        Ok(certificate.zip(self.opened(&self.store.client_paths(user).1)?))
    }

    /// The same, unless its certificate is not valid now.
    pub fn valid_client(&self, user: &str) -> Result<Option<(String, Zeroizing<String>)>, PkiError> {
        let is_valid = |it: Certificate| (it.not_before..it.not_after).contains(&Timestamp::now());
        Ok(self.client(user)?.filter(|(pem, _)| Certificate::parse(pem).is_ok_and(is_valid)))
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
