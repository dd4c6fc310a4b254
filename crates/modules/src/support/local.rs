//! Files of the operator that modules carry to a target.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::Arc,
};

use zeroize::Zeroizing;

use super::{ActionContext, ActionError, BuildContext, ModuleError};
use crate::{
    digest::{Sha256, hex, sha256},
    model::Masker,
    source::{Opener, UsedFiles, is_sealed},
};

/// A text up to this size travels inside the payload; anything else is uploaded, and only if it is wanted.
pub(crate) const INLINE_LIMIT: u64 = 64 * 1024;

/// What is compared before a body travels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    pub sha256: String,
    pub size: u64,
}

impl Fingerprint {
    pub fn of(body: &[u8]) -> Self {
        Self { sha256: hex(sha256(body)), size: body.len() as u64 }
    }

    /// Reads the whole file; not for the async threads.
    pub fn of_file(path: &Path) -> io::Result<Self> {
        let mut file = File::open(path)?;
        let mut hasher = Sha256::default();
        let mut buffer = vec![0; 256 * 1024];
        let mut size = 0;
        loop {
            let read = file.read(&mut buffer)?;
            if read == 0 {
                return Ok(Self { sha256: hex(hasher.finish()), size });
            }
            hasher.update(&buffer[..read]);
            size += read as u64;
        }
    }
}

/// Finds `src` in the folders it may be in; the first match wins.
pub(crate) fn find(src: &str, folders: &[PathBuf]) -> Result<PathBuf, ModuleError> {
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
pub(crate) fn with_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), std::env::home_dir()) {
        (Some(rest), Some(home)) => home.join(rest),
        _ => PathBuf::from(path),
    }
}

/// What goes to a target, and how.
pub(crate) enum Body {
    /// A small text, inside the payload.
    Inline {
        bytes: Zeroizing<Vec<u8>>,
        secret: bool,
    },
    Upload(Source),
}

impl Body {
    pub fn is_secret(&self) -> bool {
        matches!(self, Self::Inline { secret: true, .. } | Self::Upload(Source::Opened { .. }))
    }
}

/// Where the bytes of an upload are.
pub(crate) enum Source {
    File(PathBuf),
    /// In memory only, because they are encrypted on disk.
    Opened {
        path: PathBuf,
        bytes: Zeroizing<Vec<u8>>,
    },
}

impl Source {
    pub async fn fingerprint(&self) -> Result<Fingerprint, ActionError> {
        match self {
            Self::File(path) => super::place::fingerprint(path).await,
            Self::Opened { bytes, .. } => Ok(Fingerprint::of(bytes)),
        }
    }

    /// The path it has on the target.
    pub async fn upload(&self, context: &ActionContext) -> Result<String, ActionError> {
        match self {
            Self::File(path) => context.upload(path).await,
            Self::Opened { path, bytes } => Ok(context.session.upload_bytes(path, bytes).await?),
        }
    }
}

/// Reads files of the operator, and opens those that are encrypted.
#[derive(Clone)]
pub(crate) struct Files {
    opener: Option<Arc<dyn Opener>>,
    masker: Masker,
    used: UsedFiles,
}

impl Files {
    /// `decrypt: false` takes encrypted files as they are.
    pub fn new(context: &BuildContext<'_>, decrypt: bool) -> Self {
        Self {
            opener: context.sources.opener().filter(|_| decrypt).cloned(),
            masker: context.sources.masker().clone(),
            used: context.sources.used().clone(),
        }
    }

    pub fn read(&self, path: &Path) -> Result<Body, ModuleError> {
        self.used.note(path);
        let head = head(path).map_err(|error| unreadable(path, &error))?;
        if self.opens(&head) {
            let bytes = self.open(path)?;
            return Ok(match is_inline(&bytes) {
                true => Body::Inline { bytes, secret: true },
                false => Body::Upload(Source::Opened { path: path.to_owned(), bytes }),
            });
        }
        Ok(match is_inline(&head) {
            true => Body::Inline { bytes: Zeroizing::new(head), secret: false },
            false => Body::Upload(Source::File(path.to_owned())),
        })
    }

    /// The whole of a file, and whether it was encrypted.
    pub fn bytes(&self, path: &Path) -> Result<(Zeroizing<Vec<u8>>, bool), ModuleError> {
        self.used.note(path);
        let bytes = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
        match self.opens(&bytes) {
            true => self.open(path).map(|opened| (opened, true)),
            false => Ok((Zeroizing::new(bytes), false)),
        }
    }

    fn opens(&self, head: &[u8]) -> bool {
        self.opener.is_some() && is_sealed(head)
    }

    fn open(&self, path: &Path) -> Result<Zeroizing<Vec<u8>>, ModuleError> {
        let sealed = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
        let Some(opener) = &self.opener else { return Ok(Zeroizing::new(sealed)) };
        let opened = opener.open(&sealed).map_err(|error| ModuleError {
            message: format!("`{}`: {}", path.display(), error.message),
            help: error.help,
        })?;
        // What is larger is not shown anywhere.
        if let Ok(text) = std::str::from_utf8(&opened)
            && text.len() as u64 <= INLINE_LIMIT
        {
            self.masker.add_file(text);
        }
        Ok(opened)
    }
}

fn unreadable(path: &Path, error: &io::Error) -> ModuleError {
    ModuleError::new(format!("cannot read `{}`: {error}", path.display()))
}

/// The start of a file: enough to see what it is, and all of a small one.
fn head(path: &Path) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    File::open(path)?.take(INLINE_LIMIT + 1).read_to_end(&mut head)?;
    Ok(head)
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
            let files = Files { opener: None, masker: Masker::default(), used: UsedFiles::default() };
            matches!(files.read(&path).unwrap(), Body::Inline { .. })
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
