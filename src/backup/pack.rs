//! Compresses and encrypts on the way in, opens and checks on the way out. The work is done by a thread of its own, since
//! neither age nor zstd waits for anything.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    sync::{Arc, Mutex, PoisonError},
};

use sha2::{Digest, Sha256};
use tokio::io::AsyncBufRead;
use tokio_util::io::SyncIoBridge;

use super::{BackupError, Manifest, Sink, Store};
use crate::{
    etcd::snapshot::{self, Snapshot, SnapshotError},
    secret::Recipients,
    source::Opener,
};

/// Quick rather than small: a database of keys and values compresses well at any level.
const LEVEL: i32 = 1;
const BUFFER: usize = 1 << 20;
/// With a longer window zstd wants more memory than anything we write needs.
const WINDOW_LOG: u32 = 27;

/// Bytes as they are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Packed {
    pub size: u64,
    pub sha256: String,
}

/// Counts what goes by. Shared with whoever asks at the end.
#[derive(Clone, Default)]
struct Meter(Arc<Mutex<(Sha256, u64)>>);

impl Meter {
    fn add(&self, bytes: &[u8]) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.0.update(bytes);
        state.1 += bytes.len() as u64;
    }

    fn packed(&self) -> Packed {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sha256 = state.0.clone().finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        Packed { size: state.1, sha256 }
    }
}

struct Metered<T> {
    inner: T,
    meter: Meter,
}

impl<T: Write> Write for Metered<T> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.meter.add(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<T: Read> Read for Metered<T> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.meter.add(&buffer[..count]);
        Ok(count)
    }
}

/// Some work between what comes from one side and a sink, which is the caller's to keep or to abandon if it went well.
async fn through(
    from: impl AsyncBufRead + Send + Unpin + 'static,
    sink: Sink,
    work: impl FnOnce(Box<dyn BufRead + Send>, &mut dyn Write) -> Result<(), BackupError> + Send + 'static,
) -> Result<(Sink, Packed), BackupError> {
    // The thread writes by itself, too: whatever is handed on is copied.
    let working = tokio::task::spawn_blocking(move || {
        let mut into = Metered { inner: Outlet { inner: sink, failed: None }, meter: Meter::default() };
        let worked = work(Box::new(SyncIoBridge::new(from)), &mut into);
        let Metered { inner: Outlet { inner: sink, failed }, meter } = into;
        let worked = match failed {
            Some(error) => Err(sink.refuses(&error)),
            None => worked.map(|()| meter.packed()),
        };
        (sink, worked)
    });
    let (sink, worked) =
        working.await.map_err(|error| BackupError::Failed { what: "pack".into(), why: error.to_string() })?;
    match worked {
        Ok(packed) => Ok((sink, packed)),
        Err(error) => {
            sink.abandon().await;
            Err(error)
        }
    }
}

/// Compresses, encrypts if there are recipients, and stores.
pub(crate) async fn keep_stream(
    from: impl AsyncBufRead + Send + Unpin + 'static,
    sink: Sink,
    recipients: Option<Recipients>,
) -> Result<(Sink, Packed), BackupError> {
    through(from, sink, move |mut from, into| match recipients {
        None => compress(&mut from, into),
        Some(recipients) => encrypt(&recipients, into, &mut |into| compress(&mut from, into)),
    })
    .await
}

fn compress(from: &mut dyn BufRead, into: &mut dyn Write) -> Result<(), BackupError> {
    let compressed = || {
        let mut encoder = zstd::Encoder::new(into, LEVEL)?;
        encoder.include_checksum(true)?;
        loop {
            // As it comes, rather than by way of a buffer.
            let piece = from.fill_buf()?;
            let count = piece.len();
            if count == 0 {
                return encoder.finish().map(drop);
            }
            encoder.write_all(piece)?;
            from.consume(count);
        }
    };
    compressed().map_err(|error: io::Error| BackupError::io("compress", &error))
}

type Inner<'i> = &'i mut dyn FnMut(&mut dyn Write) -> Result<(), BackupError>;

fn encrypt(recipients: &Recipients, into: &mut dyn Write, inner: Inner<'_>) -> Result<(), BackupError> {
    let failed = |error: io::Error| BackupError::io("encrypt", &error);
    let Recipients::Keys(keys) = recipients else {
        return Err(BackupError::Recipient("backups are encrypted to keys, not with a passphrase".into()));
    };
    let encryptor = age::Encryptor::with_recipients(keys.iter().map(|key| &**key as &dyn age::Recipient))
        .map_err(|error| BackupError::Recipient(error.to_string()))?;
    let mut sealed = encryptor.wrap_output(into).map_err(failed)?;
    inner(&mut sealed)?;
    sealed.finish().map(drop).map_err(failed)
}

/// Encrypts a backup anew, for others. It is not unpacked for that, and not changed either.
pub(crate) async fn reseal(
    store: &Store,
    manifest: &Manifest,
    opener: Option<Arc<dyn Opener>>,
    recipients: Recipients,
    sink: Sink,
) -> Result<(Sink, Packed), BackupError> {
    let name = store.call(&manifest.file);
    let from = tokio::io::BufReader::with_capacity(BUFFER, store.read(&manifest.file).await?);
    let manifest = manifest.clone();
    through(from, sink, move |from, into| {
        let meter = Meter::default();
        let from = Metered { inner: from, meter: meter.clone() };
        let mut plain = opened(Box::new(from), &manifest, &name, opener.as_deref())?;
        encrypt(&recipients, into, &mut |into| {
            io::copy(&mut plain, into).map(drop).map_err(|error| damaged(&name, &error.to_string()))
        })?;
        compare(&meter.packed(), &manifest, &name)
    })
    .await
}

/// A backup's bytes without the encryption.
fn opened(
    from: Box<dyn Read + Send>,
    manifest: &Manifest,
    name: &str,
    opener: Option<&dyn Opener>,
) -> Result<Box<dyn Read + Send>, BackupError> {
    if manifest.recipients.is_empty() {
        return Ok(from);
    }
    let none = || BackupError::Failed { what: format!("open {name}"), why: "there is no key here".into() };
    let opener = opener.ok_or_else(none)?;
    opener.open_stream(from).map_err(|error| BackupError::Shut { name: name.to_owned(), error })
}

/// Reads a backup from end to end into something, and compares it with all that is known of it.
pub(crate) async fn unpack(
    store: &Store,
    manifest: &Manifest,
    opener: Option<Arc<dyn Opener>>,
    into: impl Write + Send + 'static,
) -> Result<Snapshot, BackupError> {
    let from = store.read(&manifest.file).await?;
    let (manifest, name) = (manifest.clone(), store.call(&manifest.file));
    let working = tokio::task::spawn_blocking(move || {
        let from = BufReader::with_capacity(BUFFER, SyncIoBridge::new(from));
        open(Box::new(from), &manifest, &name, opener.as_deref(), into)
    });
    working.await.map_err(|error| BackupError::Failed { what: "unpack".into(), why: error.to_string() })?
}

fn open(
    from: Box<dyn Read + Send>,
    manifest: &Manifest,
    name: &str,
    opener: Option<&dyn Opener>,
    into: impl Write,
) -> Result<Snapshot, BackupError> {
    let meter = Meter::default();
    let from = Metered { inner: from, meter: meter.clone() };
    let mut into = Outlet { inner: into, failed: None };
    let read = opened(Box::new(from), manifest, name, opener).and_then(|plain| {
        let mut decoder = zstd::Decoder::new(plain).map_err(|error| damaged(name, &error.to_string()))?;
        decoder.window_log_max(WINDOW_LOG).map_err(|error| damaged(name, &error.to_string()))?;
        let snapshot = snapshot::read_through(&mut decoder, &mut into).map_err(|error| match error {
            SnapshotError::Etcd(error) => SnapshotError::Etcd(error).into(),
            other => damaged(name, &other.to_string()),
        });
        // What is behind the end, if there is anything, is not ours: the checksum shows it.
        let _ = io::copy(&mut decoder.finish(), &mut io::sink());
        snapshot
    });
    if let Some(error) = into.failed.take() {
        return Err(BackupError::io(format!("unpack {name}"), &error));
    }
    let seen = meter.packed();
    let snapshot = match read {
        // Its being cut off explains whatever else went wrong.
        Err(BackupError::Damaged { .. }) if seen.size < manifest.stored_size => {
            let why = format!("it ends after {} of {} bytes, or cannot be read there", seen.size, manifest.stored_size);
            return Err(damaged(name, &why));
        }
        read => read?,
    };
    compare(&seen, manifest, name)?;
    if (snapshot.size, &snapshot.sha256) != (manifest.size, &manifest.sha256) {
        return Err(damaged(name, "it is not the snapshot that its manifest describes"));
    }
    Ok(snapshot)
}

fn compare(seen: &Packed, manifest: &Manifest, name: &str) -> Result<(), BackupError> {
    if seen.size != manifest.stored_size {
        let why = format!("it has {} bytes, and its manifest says {}", seen.size, manifest.stored_size);
        return Err(damaged(name, &why));
    }
    match seen.sha256 == manifest.stored_sha256 {
        true => Ok(()),
        false => Err(damaged(name, "its checksum is not that of its manifest")),
    }
}

fn damaged(name: &str, why: &str) -> BackupError {
    BackupError::Damaged { name: name.to_owned(), why: why.to_owned() }
}

/// Remembers that writing failed, which is no fault of what was read.
struct Outlet<W> {
    inner: W,
    failed: Option<io::Error>,
}

impl<W: Write> Write for Outlet<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.inner.write(bytes).map_err(|error| {
            let same = io::Error::new(error.kind(), error.to_string());
            self.failed = Some(error);
            same
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
