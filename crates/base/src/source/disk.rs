//! What load asks of the disk, kept so that the same questions can be answered the same way later.
//!
//! Loading runs on one thread, so what is kept is kept by thread: [`record`] listens to all that a
//! closure asks, [`replay`] answers from what was kept, and otherwise the disk itself answers. [`pretend`] has texts that are to
//! be there, and are not yet.

use std::{
    cell::RefCell,
    collections::{BTreeMap, HashMap},
    fs, io,
    io::Read as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::digest::{hex, sha256};

/// What is at a path, links followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Found {
    Absent,
    File,
    Folder,
}

/// All that was asked of one path, and the answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answers {
    #[serde(skip_serializing_if = "Option::is_none")]
    found: Option<Found>,
    /// Size and time of change, for files that were seen and not read.
    #[serde(skip_serializing_if = "Option::is_none")]
    stamp: Option<(u64, i64)>,
    /// The sum of what was read, which names the content.
    #[serde(skip_serializing_if = "Option::is_none")]
    read: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    list: Option<Vec<String>>,
    /// The sum of what it printed, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    printed: Option<String>,
    /// It was never on the disk.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pretended: bool,
}

/// Everything that was asked while something was loaded.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub answers: BTreeMap<PathBuf, Answers>,
    /// What was read, by its sum.
    pub contents: HashMap<String, Vec<u8>>,
}

enum Mode {
    Direct,
    Record(Inputs),
    Replay(Inputs),
}

thread_local! {
    static MODE: RefCell<Mode> = const { RefCell::new(Mode::Direct) };
    static PRETENDED: RefCell<BTreeMap<PathBuf, Vec<u8>>> = const { RefCell::new(BTreeMap::new()) };
}

/// Runs `work` as if these were the files at these paths.
pub fn pretend<T>(files: BTreeMap<PathBuf, Vec<u8>>, work: impl FnOnce() -> T) -> T {
    let before = PRETENDED.replace(files);
    let value = work();
    PRETENDED.set(before);
    value
}

fn pretended(path: &Path) -> Option<Vec<u8>> {
    PRETENDED.with_borrow(|files| files.get(path).cloned())
}

/// Runs `work`, and keeps what it asks of the disk.
pub fn record<T>(work: impl FnOnce() -> T) -> (T, Inputs) {
    let (value, mode) = within(Mode::Record(Inputs::default()), work);
    match mode {
        Mode::Record(inputs) => (value, inputs),
        _ => (value, Inputs::default()),
    }
}

/// Runs `work` on what was kept. What was never asked for is not there.
pub fn replay<T>(inputs: Inputs, work: impl FnOnce() -> T) -> T {
    within(Mode::Replay(inputs), work).0
}

fn within<T>(mode: Mode, work: impl FnOnce() -> T) -> (T, Mode) {
    let before = MODE.replace(mode);
    let value = work();
    (value, MODE.replace(before))
}

/// What is there.
pub fn find(path: &Path) -> Found {
    answer(
        |inputs| inputs.answers.get(path).and_then(|known| known.found).unwrap_or(Found::Absent),
        || pretended(path).map_or_else(|| look(path), |_| (Found::File, None)),
        |inputs, (found, stamp)| {
            let known = inputs.answers.entry(path.to_owned()).or_default();
            (known.found, known.stamp) = (Some(*found), *stamp);
        },
        |(found, _)| found,
    )
}

/// The bytes of a file, up to `limit`.
pub fn read(path: &Path, limit: u64) -> io::Result<Vec<u8>> {
    answer(
        |inputs| inputs.content(path, |known| known.read.as_ref()),
        || {
            if let Some(bytes) = pretended(path) {
                return Ok(bytes);
            }
            let mut bytes = Vec::new();
            fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut bytes)).map(|_| bytes)
        },
        |inputs, result| {
            if let Ok(bytes) = result {
                inputs.keep(path, bytes, |known| &mut known.read);
            }
        },
        |result| result,
    )
}

/// The names in a folder, sorted.
pub fn list(path: &Path) -> io::Result<Vec<String>> {
    answer(
        |inputs| inputs.answers.get(path).and_then(|known| known.list.clone()).ok_or_else(missing),
        || names(path),
        |inputs, result| {
            if let Ok(names) = result {
                inputs.answers.entry(path.to_owned()).or_default().list = Some(names.clone());
            }
        },
        |result| result,
    )
}

/// What the program at `path` printed; `run` runs it where it has not run yet.
pub fn printed<E>(path: &Path, run: impl FnOnce() -> Result<String, E>) -> Result<String, E> {
    let kept = MODE.with_borrow(|mode| match mode {
        Mode::Replay(inputs) => inputs.content(path, |known| known.printed.as_ref()).ok(),
        _ => None,
    });
    if let Some(bytes) = kept {
        return Ok(String::from_utf8_lossy(&bytes).into_owned());
    }
    let text = run()?;
    MODE.with_borrow_mut(|mode| {
        if let Mode::Record(inputs) = mode {
            inputs.keep(path, text.as_bytes(), |known| &mut known.printed);
        }
    });
    Ok(text)
}

/// Whether what is there is a program that was run when this was recorded; `None` if nothing was recorded.
pub fn was_program(path: &Path) -> Option<bool> {
    MODE.with_borrow(|mode| match mode {
        Mode::Replay(inputs) => Some(inputs.answers.get(path).is_some_and(|known| known.printed.is_some())),
        _ => None,
    })
}

/// One question: answered from what was kept, or by the disk, and then kept.
fn answer<Raw, T>(
    kept: impl FnOnce(&Inputs) -> T,
    ask: impl FnOnce() -> Raw,
    keep: impl FnOnce(&mut Inputs, &Raw),
    value: impl FnOnce(Raw) -> T,
) -> T {
    MODE.with_borrow_mut(|mode| match mode {
        Mode::Direct => value(ask()),
        Mode::Replay(inputs) => kept(inputs),
        Mode::Record(inputs) => {
            let raw = ask();
            keep(inputs, &raw);
            value(raw)
        }
    })
}

impl Inputs {
    fn content(&self, path: &Path, which: impl Fn(&Answers) -> Option<&String>) -> io::Result<Vec<u8>> {
        let sum = self.answers.get(path).and_then(which);
        sum.and_then(|sum| self.contents.get(sum)).cloned().ok_or_else(missing)
    }

    fn keep(&mut self, path: &Path, bytes: &[u8], which: impl Fn(&mut Answers) -> &mut Option<String>) {
        let sum = sum(bytes);
        self.contents.entry(sum.clone()).or_insert_with(|| bytes.to_owned());
        let known = self.answers.entry(path.to_owned()).or_default();
        known.pretended = pretended(path).is_some();
        *which(known) = Some(sum);
    }

    /// Paths at which the disk now answers otherwise. Programs are not run for that.
    pub fn differing(&self) -> Vec<&Path> {
        self.answers.iter().filter(|(path, known)| known.differs(path)).map(|(path, _)| path.as_path()).collect()
    }

    /// The sums of all contents that are needed to answer again.
    pub fn sums(&self) -> impl Iterator<Item = &str> {
        self.answers.values().flat_map(Answers::sums)
    }
}

impl Answers {
    pub fn sums(&self) -> impl Iterator<Item = &str> {
        self.read.iter().chain(&self.printed).map(String::as_str)
    }

    fn differs(&self, path: &Path) -> bool {
        if self.pretended {
            return false;
        }
        let (found, stamp) = look(path);
        if self.found.is_some_and(|known| known != found) {
            return true;
        }
        if let Some(known) = &self.read {
            return fs::read(path).map(|bytes| sum(&bytes)).ok().as_ref() != Some(known);
        }
        if let Some(known) = &self.list {
            return names(path).ok().as_ref() != Some(known);
        }
        self.stamp != stamp && self.stamp.is_some()
    }
}

fn look(path: &Path) -> (Found, Option<(u64, i64)>) {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => (Found::Folder, None),
        Ok(metadata) => (Found::File, Some((metadata.len(), metadata.mtime()))),
        Err(_) => (Found::Absent, None),
    }
}

fn names(path: &Path) -> io::Result<Vec<String>> {
    let path = if path.as_os_str().is_empty() { Path::new(".") } else { path };
    let mut names = Vec::new();
    for entry in fs::read_dir(path)? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}

fn missing() -> io::Error {
    io::Error::from(io::ErrorKind::NotFound)
}

/// Names a content.
pub fn sum(bytes: &[u8]) -> String {
    hex(sha256(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_recorded_is_answered_again_and_changes_are_seen() {
        let folder = tempfile::tempdir().unwrap();
        let (file, other) = (folder.path().join("a.yaml"), folder.path().join("b.yaml"));
        fs::write(&file, "one").unwrap();
        let ask = || {
            let text = read(&file, 100).map(|bytes| String::from_utf8(bytes).unwrap());
            (text.ok(), find(&file), find(&other), list(folder.path()).ok(), read(&other, 100).is_ok())
        };
        let (first, inputs) = record(ask);
        assert_eq!(inputs.differing(), [""; 0].map(Path::new));
        fs::write(&file, "two").unwrap();
        fs::write(&other, "new").unwrap();
        assert_eq!(replay(inputs.clone(), ask), first);
        assert_eq!(ask().0.as_deref(), Some("two"), "outside, the disk itself answers");
        assert_eq!(inputs.differing(), [folder.path(), &file, &other]);
    }

    #[test]
    fn what_is_pretended_is_kept_like_the_rest_and_not_missed_later() {
        let path = PathBuf::from("/nowhere/a.yaml");
        let ask = || (find(&path), read(&path, 100).ok());
        let files = BTreeMap::from([(path.clone(), b"one".to_vec())]);
        let (told, inputs) = pretend(files, || record(ask));
        assert_eq!(told, (Found::File, Some(b"one".to_vec())));
        assert_eq!(ask(), (Found::Absent, None));
        assert_eq!(replay(inputs.clone(), ask), told);
        assert!(inputs.differing().is_empty());
    }

    #[test]
    fn a_program_runs_once() {
        let path = Path::new("hosts.sh");
        let (first, inputs) = record(|| printed(path, || Ok::<_, ()>("{}".to_owned())));
        let again = replay(inputs, || (was_program(path), printed(path, || Err(()))));
        assert_eq!((first, again), (Ok("{}".to_owned()), (Some(true), Ok("{}".to_owned()))));
    }
}
