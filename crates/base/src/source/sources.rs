//! The files that were read, kept so that a diagnostic can show the line it speaks of.

use std::{
    collections::BTreeMap,
    fmt, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use zeroize::Zeroizing;

use super::{
    Diagnostic, MAX_FILE_BYTES, disk,
    sealed::{Opener, blanked, is_sealed},
};
use crate::model::{FileId, Masker, Span};

#[derive(Clone, Debug)]
struct SourceFile {
    path: PathBuf,
    /// Of an encrypted file only the shape.
    text: Arc<str>,
    secret: Option<Arc<Zeroizing<String>>>,
}

/// All files read for one invocation.
#[derive(Clone, Default)]
pub struct Sources {
    files: Vec<SourceFile>,
    opener: Option<Arc<dyn Opener>>,
    values_stay_sealed: bool,
    masker: Masker,
    used: UsedFiles,
}

impl fmt::Debug for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.files.iter().map(|file| &file.path)).finish()
    }
}

/// A line and a column, both counted from one.
/// Files of the operator that tasks have used, with the sums of what was in them, where somebody wants to know.
#[derive(Clone, Debug, Default)]
pub struct UsedFiles(Option<Arc<Mutex<BTreeMap<PathBuf, String>>>>);

impl UsedFiles {
    pub fn note(&self, path: &Path) {
        let Some(files) = &self.0 else { return };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        // What cannot be read is told where it is used.
        if let Ok(bytes) = std::fs::read(&path) {
            files.lock().unwrap_or_else(PoisonError::into_inner).insert(path, super::disk::sum(&bytes));
        }
    }

    pub fn all(&self) -> BTreeMap<PathBuf, String> {
        self.0.as_ref().map(|files| files.lock().unwrap_or_else(PoisonError::into_inner).clone()).unwrap_or_default()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    pub line: usize,
    pub column: usize,
}

impl Sources {
    /// Opens encrypted values and files with this, and has what was in them masked.
    pub fn opening(opener: Arc<dyn Opener>, masker: Masker) -> Self {
        Self { opener: Some(opener), masker, ..Self::default() }
    }

    /// Opens encrypted files, whose names must be known, and leaves encrypted values as they are.
    pub fn opening_files(opener: Arc<dyn Opener>, masker: Masker) -> Self {
        Self { values_stay_sealed: true, ..Self::opening(opener, masker) }
    }

    pub fn opener(&self) -> Option<&Arc<dyn Opener>> {
        self.opener.as_ref()
    }

    /// From now on, files that tasks send or render are noted.
    pub fn note_used(&mut self) -> UsedFiles {
        self.used = UsedFiles(Some(Arc::default()));
        self.used.clone()
    }

    pub fn used(&self) -> &UsedFiles {
        &self.used
    }

    pub fn masker(&self) -> &Masker {
        &self.masker
    }

    /// What opens values, if that is wanted here.
    pub fn value_opener(&self) -> Option<&dyn Opener> {
        self.opener.as_deref().filter(|_| !self.values_stay_sealed)
    }

    /// Adds text that has a name but need not be a file (`-e` arguments, embedded playbooks).
    pub fn add(&mut self, path: impl Into<PathBuf>, text: impl Into<Arc<str>>) -> FileId {
        let id = FileId(u32::try_from(self.files.len()).unwrap_or(u32::MAX));
        self.files.push(SourceFile { path: path.into(), text: text.into(), secret: None });
        id
    }

    fn add_secret(&mut self, path: &Path, text: Zeroizing<String>) -> FileId {
        let id = self.add(path, blanked(&text));
        if let Some(file) = self.files.last_mut() {
            file.secret = Some(Arc::new(text));
        }
        id
    }

    /// Reads a text file within the size limit. The error says what is wrong with the file itself.
    pub fn read(&mut self, path: &Path) -> Result<FileId, Diagnostic> {
        let wrong = |problem: String| Diagnostic::error(None, format!("{}: {problem}", path.display()));
        let bytes = read_bytes(path).map_err(wrong)?;
        if !is_sealed(&bytes) {
            return Ok(self.add(path, as_text(bytes).map_err(wrong)?));
        }
        let Some(opener) = &self.opener else { return Err(wrong("is encrypted, and is not decrypted here".into())) };
        let opened = opener.open(&bytes).map_err(|error| wrong(error.message).maybe_help(error.help))?;
        let text = Zeroizing::new(as_text(opened.to_vec()).map_err(wrong)?);
        Ok(self.add_secret(path, text))
    }

    /// The text of a file that was encrypted.
    pub(super) fn secret_text(&self, file: FileId) -> Option<Arc<Zeroizing<String>>> {
        self.files.get(file.0 as usize)?.secret.clone()
    }

    pub fn text(&self, file: FileId) -> &str {
        self.files.get(file.0 as usize).map_or("", |f| &f.text)
    }

    pub fn shared_text(&self, file: FileId) -> Arc<str> {
        self.files.get(file.0 as usize).map_or_else(|| "".into(), |f| f.text.clone())
    }

    pub fn path(&self, file: FileId) -> &Path {
        self.files.get(file.0 as usize).map_or(Path::new(""), |f| &f.path)
    }

    pub fn position(&self, span: Span) -> Position {
        let text = self.text(span.file);
        let start = (span.start as usize).min(text.len());
        let before = text.get(..start).unwrap_or(text);
        let line_start = before.rfind('\n').map_or(0, |i| i + 1);
        Position { line: before.matches('\n').count() + 1, column: before[line_start..].chars().count() + 1 }
    }

    /// `file:line:column`, as editors take it.
    pub fn describe(&self, span: Span) -> String {
        let Position { line, column } = self.position(span);
        format!("{}:{line}:{column}", self.path(span.file).display())
    }
}

fn read_bytes(path: &Path) -> Result<Vec<u8>, String> {
    if disk::find(path) == disk::Found::Folder {
        return Err("is a directory; expected a file".into());
    }
    let limit = u64::try_from(MAX_FILE_BYTES).unwrap_or(u64::MAX);
    // A size limit on the read itself: a device or a growing file has no honest length.
    let bytes = disk::read(path, limit + 1).map_err(|e| describe_io(&e))?;
    if bytes.len() > MAX_FILE_BYTES {
        return Err(format!("is larger than {} MiB, the limit for a YAML file", MAX_FILE_BYTES >> 20));
    }
    Ok(bytes)
}

fn as_text(bytes: Vec<u8>) -> Result<String, String> {
    String::from_utf8(bytes).map_err(|e| format!("is not text: byte {} is not UTF-8", e.utf8_error().valid_up_to()))
}

fn describe_io(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "no such file".into(),
        io::ErrorKind::PermissionDenied => "permission denied".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_count_characters_from_one() {
        let mut sources = Sources::default();
        let file = sources.add("x.yaml", "a: 1\nü: {b}\n");
        assert_eq!(sources.describe(Span::new(file, 9, 10)), "x.yaml:2:4");
        assert_eq!(sources.describe(Span::new(file, 999, 1000)), "x.yaml:3:1");
    }
}
