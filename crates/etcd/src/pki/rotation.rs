//! Another authority takes the place of the one that signs. It does so in phases, each of them a state that may last:
//!
//! ```text
//! trust    members and clients come to trust both; the old one signs
//! issue    the new one signs, and its certificates take the place of the old ones; both are trusted
//! finish   members come to trust the new one only
//! ```
//!
//! `rotation.json` alone decides what holds: it is replaced as a whole, and everything else follows from it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    Authority, Certificate, Keeping, PkiError, Store,
    authority::{Files, NewAuthority, read},
};
use crate::inventory::sections::TlsSection;

/// How far a rotation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RotationPhase {
    /// Members and clients start to trust the new CA too.
    Trust,
    /// The new CA signs.
    Issue,
    /// Members trust only the new CA.
    Finish,
}

impl RotationPhase {
    pub fn name(self) -> &'static str {
        match self {
            Self::Trust => "trust",
            Self::Issue => "issue",
            Self::Finish => "finish",
        }
    }
}

/// A rotation that is under way.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rotation {
    pub phase: RotationPhase,
    /// All members were seen to be where this phase wants them.
    pub complete: bool,
    /// The certificates of both, in PEM.
    pub old: String,
    pub new: String,
}

impl Rotation {
    /// Begins one, with an authority that is made here or that `ca.next` names. At its first phase, unless the old authority
    /// is worth nothing any more.
    pub fn begin(
        cluster: &str,
        tls: &TlsSection,
        keeping: &Keeping<'_>,
        phase: RotationPhase,
    ) -> Result<Self, PkiError> {
        let Some(old) = Authority::open(tls, keeping)? else {
            return Err(PkiError::new(format!("the cluster `{cluster}` has no CA yet"))
                .help("`etcdrun playbook site.yaml` creates it"));
        };
        let new = match &tls.ca.next {
            Some(next) => Authority::brought(&Files::of_next(next), keeping.opener)?.pem,
            None if tls.ca.certificate.is_some() => {
                return Err(PkiError::new("the CA is your own, and the next one is not set")
                    .help("name it in the inventory: `tls: {ca: {next: {certificate: ..., key: ...}}}`"));
            }
            None => {
                let new = NewAuthority::generate(cluster, tls, keeping)?;
                keeping.store.keep_next_key(&new.sealed_key)?;
                new.pem
            }
        };
        if same(&new, &old.pem) {
            return Err(PkiError::new("`ca.next` is already the current CA"));
        }
        let rotation = Self { phase, complete: false, old: old.pem, new };
        keeping.store.keep_rotation(&rotation)?;
        Ok(rotation)
    }

    /// The old authority stays, and the new one is forgotten.
    pub fn abandon(self, store: &Store) -> Result<(), PkiError> {
        // As long as the rotation is there, it decides what is trusted.
        store.keep_certificate(&self.old)?;
        store.forget_rotation()
    }

    /// Whom members and clients trust, in PEM.
    pub fn trusted(&self) -> String {
        match self.phase {
            // The same in both phases: what did not change is not sent, and nothing restarts for it.
            RotationPhase::Trust | RotationPhase::Issue => {
                format!("{}\n{}\n", self.old.trim_end(), self.new.trim_end())
            }
            RotationPhase::Finish => self.new.clone(),
        }
    }

    /// The authority that signs in this phase.
    pub(super) fn signing(&self, tls: &TlsSection, keeping: &Keeping<'_>) -> Result<Authority, PkiError> {
        let mut signing = match self.phase {
            RotationPhase::Trust => self.old_authority(tls, keeping),
            RotationPhase::Issue | RotationPhase::Finish => self.new_authority(tls, keeping),
        }?;
        signing.trusted = self.trusted();
        Ok(signing)
    }

    pub fn old_authority(&self, tls: &TlsSection, keeping: &Keeping<'_>) -> Result<Authority, PkiError> {
        let Some(files) = Files::of(&tls.ca) else {
            return Authority::kept(self.old.clone(), &keeping.store.key_path(), keeping);
        };
        let authority = Authority::brought(&files, keeping.opener)?;
        must_be(&authority, &self.old, "`ca` is not the CA that is being replaced")?;
        Ok(authority)
    }

    pub fn new_authority(&self, tls: &TlsSection, keeping: &Keeping<'_>) -> Result<Authority, PkiError> {
        let Some(next) = &tls.ca.next else {
            let key_path = keeping.store.next_key_path();
            return match key_path.exists() {
                true => Authority::kept(self.new.clone(), &key_path, keeping),
                false => Err(PkiError::new("the CA that the rotation was started with is missing").help(format!(
                    "put `ca.next` back into the inventory; if etcdrun created the CA, its key is in {}",
                    key_path.display()
                ))),
            };
        };
        let authority = Authority::brought(&Files::of_next(next), keeping.opener)?;
        must_be(&authority, &self.new, "`ca.next` is not the CA that the rotation was started with")?;
        Ok(authority)
    }

    /// Whether the inventory names the new authority in the place of the old one, and no member needs the old one any more.
    pub fn is_over(&self, tls: &TlsSection) -> bool {
        let named = tls.ca.certificate.as_ref().and_then(|path| read(path.as_ref()).ok());
        let named = named.map(|pem| String::from_utf8_lossy(&pem).into_owned());
        self.phase == RotationPhase::Finish && named.is_some_and(|pem| same(&pem, &self.new))
    }

    /// All members are through, and only files here are left to be put into place: something came in between.
    pub fn awaits_its_end(&self, tls: &TlsSection) -> bool {
        self.phase == RotationPhase::Finish && self.complete && tls.ca.next.is_none()
    }

    /// The new authority is the only one from now on. Says whether that is all: one that was brought along takes its place
    /// in the inventory by somebody's hand.
    pub fn end(mut self, tls: &TlsSection, store: &Store) -> Result<bool, PkiError> {
        if self.is_over(tls) {
            store.forget_rotation()?;
            return Ok(true);
        }
        if tls.ca.next.is_some() {
            self.complete = true;
            store.keep_rotation(&self)?;
            return Ok(false);
        }
        let Some(key) = store.authority_key(&store.next_key_path())? else {
            return Err(PkiError::new(format!("the key is missing: {}", store.next_key_path().display())));
        };
        // From here on the old key may be gone, so nobody can be asked again whether the old authority is still trusted.
        self.complete = true;
        store.keep_rotation(&self)?;
        // Until the rotation is forgotten, it is the copies beside it that count.
        store.keep_authority(&self.new, &key)?;
        store.forget_rotation()?;
        Ok(true)
    }
}

fn same(one: &str, other: &str) -> bool {
    let key = |pem: &str| Certificate::parse(pem).ok().map(|certificate| certificate.public_key);
    key(one).is_some_and(|one| Some(one) == key(other))
}

fn must_be(authority: &Authority, pem: &str, problem: &str) -> Result<(), PkiError> {
    match same(&authority.pem, pem) {
        true => Ok(()),
        false => Err(PkiError::new(problem).help(
            "put it back into the inventory until the rotation is finished; `etcdrun certs list` shows the phase",
        )),
    }
}
