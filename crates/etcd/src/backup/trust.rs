//! Whether a backup is one of ours. Who can write to a folder or a bucket can replace what is there, and a manifest would vouch for
//! it: so manifests carry a code that only those can make who have the cluster's backup key, `backups/CLUSTER.key` in the state folder.

use std::{
    fs::{self, DirBuilder},
    io,
    ops::Deref,
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use aws_lc_rs::hmac;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::{BackupError, Manifest};
use crate::{
    digest::{hex, sha256},
    model::ByteSize,
    state_folder::write_private,
};
use etcdrun_base::mutant::{is_off, repair};

const KEY_BYTES: usize = 32;
/// What is signed begins with this, so that a code for something else never fits.
const PURPOSE: &[u8] = b"etcdrun backup manifest\0";
/// Without a code nobody vouches for sizes. What was compressed more than so many times was hardly a database, unless it is small.
const MOST_COMPRESSED: u64 = 1000;
const SMALL: u64 = 1 << 30;

/// The code over a manifest, and the key that it was made with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mac {
    pub key: String,
    pub value: String,
}

struct Key {
    /// Tells keys apart, and tells nothing of them.
    id: String,
    key: hmac::Key,
}

/// The backup keys of a cluster, a line each. The first one signs; any of them will do for a backup that is read.
pub struct Keys {
    path: PathBuf,
    keys: Vec<Key>,
}

/// What a manifest's code says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    Authentic,
    /// It has none: an older etcdrun has made it, or somebody has removed it.
    Unsigned,
    /// It was made with a key that is not here.
    OtherKey,
    Forged,
}

impl Verdict {
    /// In one word, for lists.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Authentic => "yes",
            Self::Unsigned => "no",
            Self::OtherKey => "other key",
            Self::Forged => "WRONG",
        }
    }
}

impl Keys {
    fn path_of(state: &Path, cluster: &str) -> PathBuf {
        state.join("backups").join(format!("{cluster}.key"))
    }

    /// The keys that are here, which may be none.
    pub fn load(state: &Path, cluster: &str) -> Result<Self, BackupError> {
        let path = Self::path_of(state, cluster);
        let what = || format!("read {}", path.display());
        let text = match fs::read_to_string(&path) {
            Ok(text) => Zeroizing::new(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self { path, keys: Vec::new() }),
            Err(error) => return Err(BackupError::io(what(), &error)),
        };
        let mode = fs::metadata(&path).map_err(|error| BackupError::io(what(), &error))?.mode();
        if mode & 0o077 != 0 {
            let why = format!(
                "others can read it, and anyone who has it can forge backups; run `chmod 600 {}`",
                path.display()
            );
            return Err(BackupError::Failed { what: what(), why });
        }
        let keys: Option<Vec<Key>> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(parse).collect();
        match keys {
            Some(keys) => Ok(Self { path, keys }),
            None => Err(BackupError::Failed { what: what(), why: "a line of it is not a key".into() }),
        }
    }

    /// The same, and a first one where there is none. True if it was made now.
    pub fn make(state: &Path, cluster: &str) -> Result<(Self, bool), BackupError> {
        let there = Self::load(state, cluster)?;
        if !there.keys.is_empty() {
            return Ok((there, false));
        }
        let what = || format!("write {}", there.path.display());
        let folder = state.join("backups");
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| BackupError::io(what(), &error))?;
        let key = Zeroizing::new(rand::random::<[u8; KEY_BYTES]>());
        let text = Zeroizing::new(format!("{}\n", STANDARD.encode(*key)));
        let own = folder.join(format!("{cluster}.key-{:016x}", rand::random::<u64>()));
        write_private(&own, text.as_bytes())
            .map_err(|error| BackupError::Failed { what: what(), why: error.to_string() })?;
        // Unlike a rename this takes nobody's place: of two who come at the same time, the first one's counts.
        let linked = fs::hard_link(&own, &there.path);
        // It may stay if it must; nobody reads it.
        let _ = fs::remove_file(&own);
        match linked {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(BackupError::io(what(), &error)),
            linked => Ok((Self::load(state, cluster)?, linked.is_ok())),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The manifest with its code. Without a key it stays as it is, which `make` does not let happen.
    pub fn sign(&self, manifest: Manifest) -> Manifest {
        let mac = self.keys.first().map(|Key { id, key }| {
            let tag = hmac::sign(key, &signed(&manifest));
            Mac { key: id.clone(), value: STANDARD.encode(tag.as_ref()) }
        });
        Manifest { mac, ..manifest }
    }

    pub fn verdict(&self, manifest: &Manifest) -> Verdict {
        let Some(mac) = &manifest.mac else { return Verdict::Unsigned };
        let Some(Key { key, .. }) = self.keys.iter().find(|key| key.id == mac.key) else { return Verdict::OtherKey };
        let value = STANDARD.decode(&mac.value).unwrap_or_default();
        match hmac::verify(key, &signed(manifest), &value) {
            Ok(()) => Verdict::Authentic,
            Err(_) => Verdict::Forged,
        }
    }
}

fn parse(line: &str) -> Option<Key> {
    let bytes = Zeroizing::new(STANDARD.decode(line).ok()?);
    let id = hex(&sha256([&b"etcdrun backup key\0"[..], &bytes].concat())[..8]);
    (bytes.len() == KEY_BYTES).then(|| Key { id, key: hmac::Key::new(hmac::HMAC_SHA256, &bytes) })
}

/// All that a manifest says but for its code, always in the same order.
fn signed(manifest: &Manifest) -> Vec<u8> {
    let plain = Manifest { mac: None, ..manifest.clone() };
    // Such plain types always have a JSON form.
    [PURPOSE, &serde_json::to_vec(&plain).unwrap_or_default()].concat()
}

/// What is asked of a backup before it is read.
pub struct Trust {
    pub keys: Keys,
    /// The inventory has recipients for backups: one that is not encrypted is none of ours, whatever its manifest says.
    pub encrypted: bool,
    /// Somebody has said that it need not be authentic.
    pub anyway: bool,
}

/// A manifest that may be believed.
#[derive(Clone, Debug)]
pub struct Trusted(Manifest);

impl Deref for Trusted {
    type Target = Manifest;

    fn deref(&self) -> &Manifest {
        &self.0
    }
}

impl Trust {
    /// `what` is what the manifest is called in messages.
    pub fn check(&self, what: &str, manifest: &Manifest) -> Result<Trusted, BackupError> {
        if self.encrypted && manifest.recipients.is_empty() && !is_off(repair::BACKUP_PLAIN) {
            let (cluster, name) = (&manifest.cluster, manifest.name());
            let name = name.trim_end_matches(".json").to_owned();
            return Err(BackupError::Plain { what: what.to_owned(), cluster: cluster.clone(), name });
        }
        self.check_origin(what, manifest)
    }

    /// The same, for those who are going to encrypt it.
    pub fn check_origin(&self, what: &str, manifest: &Manifest) -> Result<Trusted, BackupError> {
        let verdict = self.keys.verdict(manifest);
        if verdict == Verdict::Authentic {
            return Ok(Trusted(manifest.clone()));
        }
        if !self.anyway && !is_off(repair::BACKUP_CODE) {
            return Err(BackupError::Stranger { what: what.to_owned(), why: self.why(&verdict) });
        }
        let most = manifest.stored_size.saturating_mul(MOST_COMPRESSED).max(SMALL);
        if manifest.size > most && !is_off(repair::BACKUP_SIZE) {
            let why = format!(
                "{} are said to contain {}, which no database does",
                ByteSize(manifest.stored_size),
                ByteSize(manifest.size)
            );
            return Err(BackupError::Damaged { name: what.to_owned(), why });
        }
        Ok(Trusted(manifest.clone()))
    }

    fn why(&self, verdict: &Verdict) -> String {
        let path = self.keys.path.display();
        match verdict {
            Verdict::Authentic => String::new(),
            Verdict::Unsigned => "it has no authentication code, so its origin is unknown".into(),
            Verdict::OtherKey if self.keys.is_empty() => {
                format!("the key {path} that it was signed with is missing; copy it from where the backup was taken")
            }
            Verdict::OtherKey => format!(
                "it was signed with a key that is not in {path}; add that key as another line, from where the backup was taken"
            ),
            Verdict::Forged => "its authentication code does not match: it was changed after it was written".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backup::manifest::example;

    fn trust(keys: Keys) -> Trust {
        Trust { keys, encrypted: false, anyway: false }
    }

    fn refusal(trust: &Trust, manifest: &Manifest) -> String {
        trust.check("it", manifest).unwrap_err().to_string()
    }

    #[test]
    fn only_what_was_signed_with_a_key_of_the_cluster_is_believed() {
        let (here, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (keys, made) = Keys::make(here.path(), "prod").unwrap();
        assert!(made && !Keys::make(here.path(), "prod").unwrap().1, "a key is made once");
        let path = here.path().join("backups/prod.key");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let manifest = keys.sign(example("prod", 7, 100, "prod-r7-19700411T000000Z.db.zst"));
        // As it comes back from a store.
        let manifest: Manifest = serde_json::from_slice(&manifest.text()).unwrap();
        let trust = trust(keys);
        assert!(trust.check("it", &manifest).is_ok());
        let changes: [fn(&mut Manifest); 6] = [
            |it| it.size += 1,
            |it| it.stored_sha256.push('0'),
            |it| it.recipients.push("age1".into()),
            |it| it.revision += 1,
            |it| it.cluster.push('x'),
            |it| it.hash = None,
        ];
        let mut with_hash = example("prod", 7, 100, "x");
        with_hash.hash = Some(crate::backup::Hash { hash: 1, revision: 7, compact_revision: 0 });
        let with_hash = trust.keys.sign(with_hash);
        for change in changes {
            let mut forged = with_hash.clone();
            change(&mut forged);
            assert!(refusal(&trust, &forged).contains("does not match"), "{forged:?}");
        }
        assert!(refusal(&trust, &Manifest { mac: None, ..manifest.clone() }).contains("--unauthenticated"));

        let other = Keys::load(elsewhere.path(), "prod").unwrap();
        assert!(refusal(&super::tests::trust(other), &manifest).contains("is missing"));
        let (other, _) = Keys::make(elsewhere.path(), "prod").unwrap();
        assert!(refusal(&super::tests::trust(other), &manifest).contains("signed with a key that is not in"));
        // With both of them, what either has signed is fine.
        let there = elsewhere.path().join("backups/prod.key");
        let both = fs::read_to_string(&there).unwrap() + &fs::read_to_string(&path).unwrap();
        fs::write(&there, both).unwrap();
        assert!(super::tests::trust(Keys::load(elsewhere.path(), "prod").unwrap()).check("it", &manifest).is_ok());
    }

    #[test]
    fn what_the_inventory_wants_encrypted_cannot_be_plain() {
        let folder = tempfile::tempdir().unwrap();
        let (keys, _) = Keys::make(folder.path(), "prod").unwrap();
        let plain = keys.sign(example("prod", 7, 100, "x"));
        for anyway in [false, true] {
            let trust = Trust { keys: Keys::load(folder.path(), "prod").unwrap(), encrypted: true, anyway };
            assert!(refusal(&trust, &plain).contains("is not encrypted"), "{anyway}");
            assert!(trust.check_origin("it", &plain).is_ok(), "it can be encrypted");
        }
    }

    #[test]
    fn what_nobody_vouches_for_must_have_a_sane_size() {
        let folder = tempfile::tempdir().unwrap();
        let trust = Trust { keys: Keys::load(folder.path(), "prod").unwrap(), encrypted: false, anyway: true };
        let of = |stored_size, size| Manifest { stored_size, size, ..example("prod", 7, 100, "x") };
        assert!(trust.check("it", &of(100, 1 << 20)).is_ok());
        assert!(trust.check("it", &of(20 << 20, 15 << 30)).is_ok());
        assert!(refusal(&trust, &of(1 << 20, 2 << 40)).contains("which no database does"));
    }

    #[test]
    fn a_key_that_others_can_read_is_none() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        Keys::make(folder.path(), "prod").unwrap();
        let path = folder.path().join("backups/prod.key");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let why = Keys::load(folder.path(), "prod").err().unwrap().to_string();
        assert!(why.contains("chmod 600"), "{why}");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(&path, "c2hvcnQ=\n").unwrap();
        assert!(Keys::load(folder.path(), "prod").err().unwrap().to_string().contains("is not a key"));
    }
}
