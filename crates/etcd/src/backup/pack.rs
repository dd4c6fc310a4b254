//! Compresses and encrypts on the way in, opens and checks on the way out. The work is done by a thread of its own, since
//! neither age nor zstd waits for anything.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    sync::{Arc, Mutex, PoisonError},
};

use tokio::io::AsyncBufRead;
use tokio_util::io::SyncIoBridge;

use super::{BackupError, Manifest, Sink, Store, Trusted};
use crate::{
    digest::{Sha256, hex},
    etcd::snapshot::{self, Snapshot, SnapshotError},
    model::ByteSize,
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
pub struct Packed {
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
        Packed { size: state.1, sha256: hex(state.0.clone().finish()) }
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
pub async fn keep_stream(
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
pub async fn reseal(
    store: &Store,
    manifest: &Trusted,
    opener: Option<Arc<dyn Opener>>,
    recipients: Recipients,
    sink: Sink,
) -> Result<(Sink, Packed), BackupError> {
    let name = store.call(&manifest.file);
    let from = tokio::io::BufReader::with_capacity(BUFFER, store.read(&manifest.file).await?);
    let manifest = manifest.clone();
    through(from, sink, move |from, into| {
        let meter = Meter::default();
        let from = Metered { inner: from.take(manifest.stored_size.saturating_add(1)), meter: meter.clone() };
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
pub async fn unpack(
    store: &Store,
    manifest: &Trusted,
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
    // One byte more than there should be is enough to tell.
    let from = Metered { inner: from.take(manifest.stored_size.saturating_add(1)), meter: meter.clone() };
    let mut into = Outlet { inner: into, failed: None };
    let read = opened(Box::new(from), manifest, name, opener).and_then(|plain| {
        let mut decoder = zstd::Decoder::new(plain).map_err(|error| damaged(name, &error.to_string()))?;
        decoder.window_log_max(WINDOW_LOG).map_err(|error| damaged(name, &error.to_string()))?;
        let mut bounded = Bounded { inner: &mut decoder, left: manifest.size, all: manifest.size };
        let snapshot = snapshot::read_through(&mut bounded, &mut into).map_err(|error| match error {
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
        let why = format!("it has {} bytes, but its manifest has {}", seen.size, manifest.stored_size);
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

/// Reads no more than there should be. A few kilobytes of zstd can stand for any number of bytes, so these are counted as they come,
/// and not when the disk is full.
struct Bounded<R> {
    inner: R,
    left: u64,
    all: u64,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            io::Error::other(format!("it unpacks to more than the {} of its manifest", ByteSize(self.all)))
        })?;
        Ok(count)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        backup::{Keys, Trust, manifest::example},
        digest::sha256,
    };

    /// A stored file that unpacks to so many bytes, and the manifest for it.
    fn stored(bytes: u64) -> (Vec<u8>, Manifest) {
        let mut packed = Vec::new();
        let mut encoder = zstd::Encoder::new(&mut packed, 19).unwrap();
        io::copy(&mut io::repeat(0).take(bytes), &mut encoder).unwrap();
        encoder.finish().unwrap();
        let meter = Meter::default();
        meter.add(&packed);
        let Packed { size, sha256 } = meter.packed();
        let manifest = Manifest { size: bytes, stored_size: size, stored_sha256: sha256, ..example("prod", 1, 1, "x") };
        (packed, manifest)
    }

    fn unpacked(packed: Vec<u8>, manifest: &Manifest) -> (u64, String) {
        let meter = Meter::default();
        let into = Metered { inner: io::sink(), meter: meter.clone() };
        let opened = open(Box::new(io::Cursor::new(packed)), manifest, "it", None, into);
        (meter.packed().size, opened.unwrap_err().to_string())
    }

    #[test]
    fn nothing_is_written_beyond_what_the_manifest_says() {
        let (packed, manifest) = stored(256 << 20);
        assert!(packed.len() < 64 << 10, "{} bytes are no bomb", packed.len());
        let (written, why) = unpacked(packed, &Manifest { size: 1 << 20, ..manifest });
        assert!(why.contains("unpacks to more than the 1 MiB"), "{why}");
        assert!(written <= 1 << 20, "{written} bytes were written");
    }

    #[test]
    fn nothing_is_read_beyond_what_the_manifest_says() {
        let (mut packed, manifest) = stored(1 << 20);
        packed.resize(packed.len() + (8 << 20), 0);
        let (_, why) = unpacked(packed, &manifest);
        assert!(why.contains("is damaged"), "{why}");
    }

    #[tokio::test]
    async fn what_is_packed_comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let store = Store::Folder(folder.path().to_owned());
        let mut bytes = crate::etcd::restore::testing::database(2000);
        bytes.extend(sha256(&bytes));
        let sink = store.sink("x").await.unwrap();
        let from = tokio::io::BufReader::new(io::Cursor::new(bytes.clone()));
        let (sink, Packed { size, sha256 }) = keep_stream(from, sink, None).await.unwrap();
        sink.keep().await.unwrap();
        let (keys, _) = Keys::make(folder.path(), "prod").unwrap();
        let whole = snapshot::read_through(&mut &bytes[..], &mut io::sink()).unwrap();
        let manifest = Manifest {
            size: whole.size,
            sha256: whole.sha256,
            stored_size: size,
            stored_sha256: sha256,
            ..example("prod", 1, 1, "x")
        };
        let manifest = keys.sign(manifest);
        let trust = Trust { keys, encrypted: false, anyway: false };
        let trusted = trust.check("it", &manifest).unwrap();
        assert_eq!(unpack(&store, &trusted, None, io::sink()).await.unwrap().size, bytes.len() as u64);
    }
}
