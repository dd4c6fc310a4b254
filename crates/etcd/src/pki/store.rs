//! Where a cluster's certificates are kept on the operator's disk.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{PkiError, Rotation};
use crate::state_folder::{StateError, make_folder, write_private};

/// The folder of one cluster.
#[derive(Clone, Debug)]
pub struct Store {
    state: PathBuf,
    folder: PathBuf,
}

/// What was issued to somebody; nothing of it is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Issued {
    pub serial: String,
    pub not_after: String,
    /// Of the file with the key, so that it can be told from another.
    pub key_sha256: String,
    /// Of the public half, which a certificate for this key has.
    #[serde(default)]
    pub public_sha256: Option<String>,
}

impl Store {
    pub fn new(state: &Path, cluster: &str) -> Self {
        Self { state: state.to_owned(), folder: state.join("pki").join(cluster) }
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn certificate_path(&self) -> PathBuf {
        self.folder.join("ca.crt")
    }

    pub fn key_path(&self) -> PathBuf {
        self.folder.join("ca.key.age")
    }

    /// The files of a user's credential: certificate and key, which is encrypted.
    pub fn client_paths(&self, user: &str) -> (PathBuf, PathBuf) {
        let folder = self.folder.join("clients");
        (folder.join(format!("{user}.crt")), folder.join(format!("{user}.key")))
    }

    pub fn password_path(&self, user: &str) -> PathBuf {
        self.folder.join("clients").join(format!("{user}.password"))
    }

    pub fn authority_certificate(&self) -> Result<Option<String>, PkiError> {
        Ok(read(&self.certificate_path())?.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(super) fn authority_key(&self, path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, PkiError> {
        read(path)
    }

    /// Whom members and clients trust, in PEM.
    pub fn trusted(&self) -> Result<Option<String>, PkiError> {
        match self.rotation()? {
            Some(rotation) => Ok(Some(rotation.trusted())),
            None => self.authority_certificate(),
        }
    }

    /// The authority that is about to be replaced, and the one that takes its place.
    pub fn rotation(&self) -> Result<Option<Rotation>, PkiError> {
        let path = self.rotation_path();
        let Some(bytes) = read(&path)? else { return Ok(None) };
        serde_json::from_slice(&bytes).map(Some).map_err(|error| {
            PkiError::new(format!("{} is damaged: {error}", path.display())).help("restore it from a copy")
        })
    }

    pub fn keep_rotation(&self, rotation: &Rotation) -> Result<(), PkiError> {
        let text = serde_json::to_vec_pretty(rotation).map_err(|error| PkiError::new(error.to_string()))?;
        self.write(&self.rotation_path(), &text)?;
        self.keep_certificate(&rotation.trusted())
    }

    /// It is over; its last file goes first, so that whatever is left means nothing.
    pub(super) fn forget_rotation(&self) -> Result<(), PkiError> {
        [self.rotation_path(), self.next_key_path()].iter().try_for_each(|path| remove(path))
    }

    /// The key of the authority that takes another's place, if it was made here.
    pub(super) fn next_key_path(&self) -> PathBuf {
        self.folder.join("next.key.age")
    }

    pub(super) fn keep_next_key(&self, sealed: &[u8]) -> Result<(), PkiError> {
        self.write(&self.next_key_path(), sealed)
    }

    fn rotation_path(&self) -> PathBuf {
        self.folder.join("rotation.json")
    }

    /// The key first: a certificate without it would look like an authority that lost its key.
    pub(super) fn keep_authority(&self, pem: &str, sealed: &[u8]) -> Result<(), PkiError> {
        self.write(&self.key_path(), sealed)?;
        self.write(&self.certificate_path(), pem.as_bytes())
    }

    /// A certificate of an authority that was brought along, for those who look for it here.
    pub fn keep_certificate(&self, pem: &str) -> Result<(), PkiError> {
        if self.authority_certificate()?.as_deref() == Some(pem) {
            return Ok(());
        }
        self.write(&self.certificate_path(), pem.as_bytes())
    }

    pub fn issued(&self, name: &str) -> Result<Option<Issued>, PkiError> {
        let bytes = read(&self.folder.join("issued").join(name))?;
        Ok(bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()))
    }

    pub fn keep_issued(&self, name: &str, issued: &Issued) -> Result<(), PkiError> {
        let text = serde_json::to_vec(issued).map_err(|error| PkiError::new(error.to_string()))?;
        self.write(&self.folder.join("issued").join(name), &text)
    }

    pub(super) fn request(&self, name: &str) -> Result<Option<String>, PkiError> {
        let bytes = read(&self.folder.join("requests").join(name))?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(super) fn keep_request(&self, name: &str, pem: &str) -> Result<(), PkiError> {
        self.write(&self.folder.join("requests").join(name), pem.as_bytes())
    }

    pub fn client_certificate(&self, user: &str) -> Result<Option<String>, PkiError> {
        let bytes = read(&self.client_paths(user).0)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    /// Users that have a certificate here, sorted.
    pub fn users(&self) -> Result<Vec<String>, PkiError> {
        let folder = self.folder.join("clients");
        let entries = match fs::read_dir(&folder) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(StateError::io(&folder, &error).into()),
        };
        let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
        let mut users: Vec<String> = names.filter_map(|name| name.strip_suffix(".crt").map(str::to_owned)).collect();
        users.sort_unstable();
        Ok(users)
    }

    pub fn forget_password(&self, user: &str) -> Result<(), PkiError> {
        remove(&self.password_path(user))
    }

    pub(super) fn read(&self, path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, PkiError> {
        read(path)
    }

    pub(super) fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), PkiError> {
        make_folder(&self.state, path.parent().unwrap_or(&self.folder))?;
        Ok(write_private(path, bytes)?)
    }
}

fn remove(path: &Path) -> Result<(), PkiError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(StateError::io(path, &error).into()),
        _ => Ok(()),
    }
}

fn read(path: &Path) -> Result<Option<Zeroizing<Vec<u8>>>, PkiError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(Zeroizing::new(bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(StateError::io(path, &error).into()),
    }
}
