//! Writes the journal: a thread of its own, which syncs once for all records that are waiting.

use std::{
    fs::File,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        mpsc::{self, Receiver, RecvTimeoutError, Sender},
    },
    thread,
    time::Duration,
};

use rustix::fs::{FlockOperation, flock};
use tokio::sync::oneshot;

use super::{
    Record, StateError,
    failpoint::{Failpoint, Place, die},
    open_private,
    record::to_line,
};

/// How long a result may wait for others to be synced with.
const IDLE: Duration = Duration::from_millis(50);
/// How many records share a sync at most.
const BATCH: usize = 1024;

/// Somewhere to write what happens. Cheap to clone; closed when the last clone is gone.
#[derive(Clone, Debug)]
pub struct Journal {
    sender: Sender<Entry>,
    broken: Arc<OnceLock<StateError>>,
}

#[derive(Debug)]
struct Entry {
    at: i64,
    record: Record,
    /// Who waits until it is on the disk.
    durable: Option<oneshot::Sender<()>>,
}

impl Journal {
    /// Goes on behind `length` bytes, which hold `records` records. Nobody else may write meanwhile.
    pub(super) fn open(path: &Path, length: u64, records: u64) -> Result<Self, StateError> {
        let fail = |error: io::Error| StateError::io(path, &error);
        let file = open_private(path).map_err(fail)?;
        lock(&file, path)?;
        // What a crash left of a line goes away before another is written behind it.
        file.set_len(length).map_err(fail)?;
        let (sender, entries) = mpsc::channel();
        let broken = Arc::new(OnceLock::new());
        let writer = Writer {
            path: path.to_owned(),
            file,
            length,
            next: records + 1,
            dirty: false,
            failpoint: Failpoint::from_environment(),
            broken: broken.clone(),
        };
        thread::Builder::new().name("journal".into()).spawn(move || writer.run(&entries)).map_err(fail)?;
        Ok(Self { sender, broken })
    }

    /// Adds a record, which is on the disk before the next one that somebody waits for.
    pub fn note(&self, record: Record) {
        self.send(record, None);
    }

    /// Adds a record and waits until it is on the disk.
    pub async fn commit(&self, record: Record) -> Result<(), StateError> {
        let (sender, durable) = oneshot::channel();
        self.send(record, Some(sender));
        match durable.await {
            Ok(()) => Ok(()),
            Err(_) => Err(self.broken.get().cloned().unwrap_or_else(|| closed(Path::new("journal")))),
        }
    }

    /// Why nothing can be written any more, if that is so.
    pub fn failure(&self) -> Option<&StateError> {
        self.broken.get()
    }

    fn send(&self, record: Record, durable: Option<oneshot::Sender<()>>) {
        let at = jiff::Timestamp::now().as_millisecond();
        // A writer that is gone has said why in `broken`, and whoever waits hears of it.
        let _ = self.sender.send(Entry { at, record, durable });
    }
}

fn closed(path: &Path) -> StateError {
    StateError::Disk { path: path.to_owned(), problem: "the journal is closed".to_owned(), full: false }
}

fn lock(file: &File, path: &Path) -> Result<(), StateError> {
    flock(file, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
        rustix::io::Errno::WOULDBLOCK => {
            let run = path.parent().and_then(Path::file_name).unwrap_or_default();
            StateError::Running(run.to_string_lossy().into_owned())
        }
        other => StateError::io(path, &other.into()),
    })
}

struct Writer {
    path: PathBuf,
    file: File,
    /// How much of the file is whole records.
    length: u64,
    next: u64,
    dirty: bool,
    failpoint: Option<Failpoint>,
    broken: Arc<OnceLock<StateError>>,
}

impl Writer {
    fn run(mut self, entries: &Receiver<Entry>) {
        loop {
            let first = match entries.recv_timeout(IDLE) {
                Ok(entry) => entry,
                Err(RecvTimeoutError::Timeout) => match self.sync() {
                    Ok(()) => continue,
                    Err(error) => return self.give_up(&error),
                },
                Err(RecvTimeoutError::Disconnected) => {
                    // Nobody is left to hear of an error.
                    let _ = self.sync();
                    return;
                }
            };
            let batch: Vec<_> = std::iter::once(first).chain(entries.try_iter().take(BATCH - 1)).collect();
            if let Err(error) = self.write(batch) {
                return self.give_up(&error);
            }
        }
    }

    /// Dropping the receiver, and with it all that wait, tells them.
    fn give_up(self, error: &io::Error) {
        // Half a line at the end would be cut off later anyway.
        let _ = self.file.set_len(self.length);
        let _ = self.broken.set(StateError::io(&self.path, error));
    }

    fn write(&mut self, batch: Vec<Entry>) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(batch.len() * 256);
        let mut waiting = Vec::new();
        for entry in batch {
            let line = to_line(self.next, entry.at, &entry.record)?;
            match self.failpoint.as_ref().and_then(|point| point.at(self.next, &line)) {
                Some(place) => self.crash(place, &bytes, &line)?,
                None => bytes.extend_from_slice(&line),
            }
            self.next += 1;
            waiting.extend(entry.durable);
        }
        self.append(&bytes)?;
        if !waiting.is_empty() {
            self.sync()?;
            // Whoever no longer waits does not need to know.
            for waiting in waiting {
                let _ = waiting.send(());
            }
        }
        Ok(())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all(bytes)?;
        self.length += bytes.len() as u64;
        self.dirty = true;
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        if self.dirty {
            self.file.sync_data()?;
            self.dirty = false;
        }
        Ok(())
    }

    fn crash(&mut self, place: Place, before: &[u8], line: &[u8]) -> io::Result<()> {
        self.append(before)?;
        match place {
            Place::Before => {}
            Place::Torn => self.append(&line[..line.len() / 2])?,
            Place::Written => self.append(line)?,
            Place::After => {
                self.append(line)?;
                self.sync()?;
            }
        }
        die()
    }
}
