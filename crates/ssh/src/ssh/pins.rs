//! Keys of guests, learnt by way of their hypervisors. A known-hosts file of its own, which nobody adds to by trusting the
//! first answer: each line ends with the UUID of the guest that it was learnt from.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::known_hosts::KeyBlob;

/// The file of pins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pins(PathBuf);

/// What came of a pin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pinned {
    /// These fingerprints are what the guest is known by from now on.
    Kept(Vec<String>),
    /// The same guest was known by other keys; nothing was changed.
    Differs,
    /// There was no key among what was given.
    NoKey,
}

struct Line<'t> {
    name: &'t str,
    key: KeyBlob,
    uuid: Option<&'t str>,
}

impl Pins {
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The fingerprints that this guest is known by, if it is.
    pub fn find(&self, name: &str, uuid: &str) -> io::Result<Option<Vec<String>>> {
        let text = self.read()?;
        let found: Vec<String> = lines(&text)
            .filter(|line| line.name == name && line.uuid == Some(uuid))
            .map(|line| line.key.fingerprint())
            .collect();
        Ok((!found.is_empty()).then_some(found))
    }

    /// Another guest that is known by this name, by its UUID.
    pub fn other(&self, name: &str, uuid: &str) -> io::Result<Option<String>> {
        let text = self.read()?;
        let found = lines(&text).filter(|line| line.name == name).find_map(|line| line.uuid.filter(|it| *it != uuid));
        Ok(found.map(str::to_owned))
    }

    /// Pins the keys of a guest. Whatever another guest had under this name is forgotten: that guest is gone.
    pub fn pin(&self, name: &str, uuid: &str, keys: &[&str]) -> io::Result<Pinned> {
        let mut keys: Vec<KeyBlob> = keys.iter().filter_map(|key| parse_key(key)).collect();
        keys.dedup();
        if keys.is_empty() {
            return Ok(Pinned::NoKey);
        }
        let _lock = self.lock()?;
        let text = self.read()?;
        let known: Vec<KeyBlob> =
            lines(&text).filter(|line| line.name == name && line.uuid == Some(uuid)).map(|line| line.key).collect();
        if !known.is_empty() {
            let same = known.iter().all(|key| keys.contains(key));
            return Ok(if same { Pinned::Kept(fingerprints(&known)) } else { Pinned::Differs });
        }
        let others = text.lines().filter(|line| line.split_whitespace().next() != Some(name));
        let mut new: String = others.flat_map(|line| [line, "\n"]).collect();
        for key in &keys {
            new.push_str(&format!("{name} {} {uuid}\n", key.encoded()));
        }
        self.write(new.as_bytes())?;
        Ok(Pinned::Kept(fingerprints(&keys)))
    }

    fn read(&self) -> io::Result<String> {
        match fs::read_to_string(&self.0) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
            result => result,
        }
    }

    /// The file itself is replaced as a whole, so the lock is on another one.
    fn lock(&self) -> io::Result<File> {
        if let Some(folder) = self.0.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        let path = self.0.with_extension("lock");
        let file = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
        rustix::fs::flock(&file, rustix::fs::FlockOperation::LockExclusive)?;
        Ok(file)
    }

    fn write(&self, bytes: &[u8]) -> io::Result<()> {
        let new = self.0.with_extension(format!("new-{:08x}", rand::random::<u32>()));
        let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&new)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&new, &self.0)
    }
}

fn fingerprints(keys: &[KeyBlob]) -> Vec<String> {
    keys.iter().map(KeyBlob::fingerprint).collect()
}

fn lines(text: &str) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let mut words = line.split_whitespace();
        let name = words.next().filter(|name| !name.starts_with(['#', '@']))?;
        let key = key_of(words.next()?, words.next()?)?;
        Some(Line { name, key, uuid: words.next() })
    })
}

fn parse_key(text: &str) -> Option<KeyBlob> {
    let mut words = text.split_whitespace();
    key_of(words.next()?, words.next()?)
}

fn key_of(kind: &str, encoded: &str) -> Option<KeyBlob> {
    let bytes = STANDARD.decode(encoded).ok()?;
    let named = bytes.get(4..4 + kind.len())?;
    (named == kind.as_bytes()).then(|| KeyBlob { kind: kind.to_owned(), bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZJ";
    const OTHER: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJdD7y3aLq454yWBdwLWbieU1ebz9/cu7/QEXn9OIeZK";

    #[test]
    fn a_pin_belongs_to_a_guest_and_not_to_its_name() {
        let folder = tempfile::tempdir().unwrap();
        let pins = Pins::at(folder.path().join("state/known_hosts"));
        assert_eq!(pins.find("c/a", "u1").unwrap(), None);
        let kept = pins.pin("c/a", "u1", &[KEY]).unwrap();
        assert!(matches!(&kept, Pinned::Kept(list) if list.len() == 1));
        pins.pin("c/b", "u2", &[KEY]).unwrap();
        assert_eq!(pins.pin("c/a", "u1", &[KEY, OTHER]).unwrap(), kept, "a key more does no harm");
        assert_eq!(pins.pin("c/a", "u1", &[OTHER]).unwrap(), Pinned::Differs);
        assert_eq!(pins.pin("c/a", "u1", &["nonsense"]).unwrap(), Pinned::NoKey);
        assert_eq!(pins.other("c/a", "u1").unwrap(), None);
        assert_eq!(pins.other("c/a", "u3").unwrap().as_deref(), Some("u1"));
        pins.pin("c/a", "u3", &[OTHER]).unwrap();
        assert_eq!(fs::read_to_string(pins.path()).unwrap(), format!("c/b {KEY} u2\nc/a {OTHER} u3\n"));
        assert_eq!(pins.find("c/a", "u1").unwrap(), None, "the old guest is gone, and so is its pin");
    }
}
