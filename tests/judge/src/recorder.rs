//! Appends records to a file as they happen.

use std::{
    fs::{self, File},
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use anyhow::{Context, Result};

use crate::record::Record;

pub(crate) struct Recorder(Mutex<Inner>);

struct Inner {
    file: BufWriter<File>,
    /// The first error: what came after it is not complete.
    error: Option<std::io::Error>,
}

pub(crate) fn path(folder: &Path) -> PathBuf {
    folder.join("history.jsonl")
}

impl Recorder {
    pub(crate) fn create(folder: &Path) -> Result<Self> {
        fs::create_dir_all(folder).with_context(|| format!("could not create {}", folder.display()))?;
        let path = path(folder);
        let file = File::create_new(&path).with_context(|| format!("could not create {}", path.display()))?;
        Ok(Self(Mutex::new(Inner { file: BufWriter::with_capacity(1 << 18, file), error: None })))
    }

    pub(crate) fn record(&self, record: &Record) {
        let mut inner = self.lock();
        let written = serde_json::to_writer(&mut inner.file, record).map_err(std::io::Error::from);
        let written = written.and_then(|()| inner.file.write_all(b"\n"));
        inner.keep_error(written);
    }

    pub(crate) fn flush(&self) {
        let mut inner = self.lock();
        let flushed = inner.file.flush();
        inner.keep_error(flushed);
    }

    /// Writes what is left, and says whether everything was written.
    pub(crate) fn finish(&self) -> Result<()> {
        self.flush();
        self.lock().error.take().map_or(Ok(()), |error| Err(error).context("could not write the history"))
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn keep_error(&mut self, result: std::io::Result<()>) {
        if let Err(error) = result {
            self.error.get_or_insert(error);
        }
    }
}
