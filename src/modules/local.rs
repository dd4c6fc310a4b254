//! Files of the operator that modules carry to a target.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use super::spec::ModuleError;

/// A text up to this size travels inside the payload; anything else is uploaded, and only if it is wanted.
pub(super) const INLINE_LIMIT: u64 = 64 * 1024;

/// What is compared before a body travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint {
    pub sha256: String,
    pub size: u64,
}

impl Fingerprint {
    pub fn of(body: &[u8]) -> Self {
        Self { sha256: hex(&Sha256::digest(body)), size: body.len() as u64 }
    }

    /// Reads the whole file; not for the async threads.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut hasher = Sha256::new();
        let mut buffer = vec![0; 256 * 1024];
        let mut size = 0;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok(Self { sha256: hex(&hasher.finalize()), size });
            }
            hasher.update(&buffer[..read]);
            size += read as u64;
        }
    }
}

pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Finds `src` in the folders it may be in; the first match wins.
pub(super) fn find(src: &str, folders: &[PathBuf]) -> Result<PathBuf, ModuleError> {
    let src = with_home(src);
    let candidates: Vec<PathBuf> = match src.is_absolute() {
        true => vec![src.clone()],
        false => folders.iter().map(|folder| folder.join(&src)).collect(),
    };
    if let Some(found) = candidates.iter().find(|path| path.exists()) {
        return Ok(found.clone());
    }
    let error = ModuleError::new(format!("`{}` was not found", src.display()));
    Err(match src.is_absolute() {
        true => error,
        false => {
            let looked: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
            error.help(format!("looked in {}", looked.join(", ")))
        }
    })
}

/// `~` is the operator's home folder.
pub(super) fn with_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

/// The body of a small text file, or nothing if it must be uploaded.
pub(super) fn read_inline(path: &Path) -> Result<Option<Vec<u8>>, ModuleError> {
    let unreadable = |error: io::Error| ModuleError::new(format!("cannot read `{}`: {error}", path.display()));
    let file = File::open(path).map_err(unreadable)?;
    if file.metadata().map_err(unreadable)?.len() > INLINE_LIMIT {
        return Ok(None);
    }
    let mut body = Vec::new();
    file.take(INLINE_LIMIT + 1).read_to_end(&mut body).map_err(unreadable)?;
    Ok(Some(body).filter(|body| is_inline(body)))
}

/// Whether a shell can hold the body in a variable, in any locale.
fn is_inline(body: &[u8]) -> bool {
    body.len() as u64 <= INLINE_LIMIT && !body.contains(&0) && std::str::from_utf8(body).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_small_text_travels_inline() {
        let folder = tempfile::tempdir().unwrap();
        let read = |name: &str, body: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, body).unwrap();
            read_inline(&path).unwrap().is_some()
        };
        assert!(read("text", "grüße\n".as_bytes()));
        assert!(read("empty", b""));
        assert!(!read("nul", b"a\0b"));
        assert!(!read("latin1", b"gr\xfc\xdfe"));
        assert!(!read("large", &vec![b'x'; 70_000]));
    }

    #[test]
    fn a_file_is_found_in_the_first_folder_that_has_it() {
        let folder = tempfile::tempdir().unwrap();
        let folders = ["a", "b", "c"].map(|name| folder.path().join(name));
        for path in &folders {
            std::fs::create_dir(path).unwrap();
        }
        std::fs::write(folders[1].join("x"), "1").unwrap();
        std::fs::write(folders[2].join("x"), "2").unwrap();
        assert_eq!(find("x", &folders).unwrap(), folders[1].join("x"));
        let error = find("y", &folders).unwrap_err();
        assert_eq!(error.message, "`y` was not found");
        assert!(error.help.unwrap().contains("/b"));
    }

    #[test]
    fn fingerprints_of_bodies_and_files_agree() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        std::fs::write(&path, "abc").unwrap();
        let fingerprint = Fingerprint::of_file(&path).unwrap();
        assert_eq!(fingerprint, Fingerprint::of(b"abc"));
        assert_eq!(fingerprint.sha256, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
