//! Files to a target and from it.

use std::{
    collections::HashMap,
    path::Path,
    pin::Pin,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncSeekExt as _, AsyncWrite, ReadBuf};

use super::{
    Link, Payload, RemoteError, Segment, Session, Step, Surroundings,
    error::Trouble,
    lock::lock_is_held,
    run::{Data, Deaf, Files},
    session::only,
};
use crate::{
    digest::{Sha256, hex},
    model::{ByteSize, Outcome, Value},
};

/// What a file may have that somebody wants in memory.
const MEMORY_LIMIT: ByteSize = ByteSize(256 << 20);

const UPLOAD: &str = include_str!("upload.sh");
const APPEND: &str = include_str!("append.sh");
const DOWNLOAD: &str = include_str!("download.sh");
const REMOVE: &str = "_remove_private \"$arg_folder\"\n";

/// The private folders that a link has made on its target: one for each user, who alone can read it.
#[derive(Default)]
pub(super) struct Staging {
    folders: Mutex<HashMap<Option<Arc<str>>, Folder>>,
    files: AtomicU64,
}

#[derive(Clone)]
struct Folder {
    name: String,
    /// Where it is, once something is in it.
    path: Option<String>,
}

impl Staging {
    fn folder(&self, user: &Option<Arc<str>>) -> String {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || Folder { name: format!("etcdrun-stage-{:016x}", rand::random::<u64>()), path: None };
        folders.entry(user.clone()).or_insert_with(new).name.clone()
    }

    fn note(&self, user: &Option<Arc<str>>, path: &str) {
        let mut folders = self.folders.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(folder) = folders.get_mut(user) {
            folder.path = Some(path.to_owned());
        }
    }

    /// A name that no other file of this link has, still with its suffix.
    fn file_name(&self, local: &Path) -> String {
        let number = self.files.fetch_add(1, Ordering::SeqCst);
        let plain = |c: char| if c.is_ascii_alphanumeric() || ".-_".contains(c) { c } else { '_' };
        let name: String = local.file_name().unwrap_or_default().to_string_lossy().chars().map(plain).collect();
        let short = name.char_indices().rev().nth(99).map_or(name.as_str(), |(start, _)| &name[start..]);
        format!("{number}-{short}")
    }

    pub(super) async fn remove(&self, link: &Arc<Link>) {
        let folders = std::mem::take(&mut *self.folders.lock().unwrap_or_else(PoisonError::into_inner));
        for (become_user, folder) in folders {
            let Some(path) = folder.path else { continue };
            let session = link.session(Surroundings { become_user, ..Surroundings::default() });
            let removed = session.run_one(Payload::new(REMOVE).value("folder", &path), false).await;
            if let Err(error) = removed {
                tracing::warn!(%path, %error, "cannot remove what was staged");
            }
        }
    }
}

impl Session {
    /// Puts a local file into a private folder on the target, readable by the user this session is, and
    /// returns its path there. It goes away with [`Link::close`].
    pub async fn upload(&self, local: &Path) -> Result<String, RemoteError> {
        self.upload_with(local, &|_| {}).await
    }

    /// As [`Session::upload`]; `progress` hears how many bytes have left.
    pub async fn upload_with(
        &self,
        local: &Path,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<String, RemoteError> {
        let file = tokio::fs::File::open(local).await.map_err(|error| not_uploaded(local, &error.to_string()))?;
        self.upload_from(local, file, progress).await
    }

    /// As [`Session::upload`], for a file whose contents are in memory only.
    pub async fn upload_bytes(&self, local: &Path, bytes: &[u8]) -> Result<String, RemoteError> {
        self.upload_from(local, bytes, &|_| {}).await
    }

    /// Appends what comes behind the first `offset` bytes of a local file to a file of the target that has just those.
    /// `progress` hears how many bytes have left. From the first byte on, the target tells the checksum, if it can.
    pub async fn append(
        &self,
        local: &Path,
        remote: &str,
        offset: u64,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Option<String>, RemoteError> {
        let failed = |what: String| not_uploaded(local, &what);
        let mut file = tokio::fs::File::open(local).await.map_err(|error| failed(error.to_string()))?;
        file.seek(std::io::SeekFrom::Start(offset)).await.map_err(|error| failed(error.to_string()))?;
        self.append_stream(local, &mut file, remote, offset, progress).await
    }

    /// As [`Session::append`], for what comes from anywhere; `name` is what it is called in errors.
    pub async fn append_stream(
        &self,
        name: &Path,
        source: &mut (dyn AsyncRead + Send + Unpin),
        remote: &str,
        offset: u64,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Option<String>, RemoteError> {
        let payload = Payload::new(APPEND).value("path", remote).value("offset", offset.to_string());
        let segment = Segment { steps: vec![self.step(payload, false)] };
        let data = Data { source, progress };
        let outcome = only(self.exchange(&segment, &Deaf, Some(data), Files::None, None).await?)?;
        match outcome.failed {
            true => Err(not_uploaded(name, &describe(&outcome))),
            false => Ok(outcome.data.get("sha256").and_then(Value::as_str).map(str::to_owned)),
        }
    }

    async fn upload_from(
        &self,
        local: &Path,
        contents: impl AsyncRead + Send + Unpin,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<String, RemoteError> {
        let failed = |what: &str| not_uploaded(local, what);
        let user = &self.surroundings.become_user;
        let name = self.link.staging.file_name(local);
        let payload = Payload::new(UPLOAD).value("folder", self.link.staging.folder(user)).value("name", &name);
        let step = Step { fenced: self.fenced, ..self.step(payload, false) };
        let segment = Segment { steps: vec![step] };
        let mut source = Measured::new(contents);
        let data = Data { source: &mut source, progress };
        let outcome = only(self.exchange(&segment, &Deaf, Some(data), Files::None, None).await?)?;
        if let Some(folder) = outcome.data.get("folder").and_then(Value::as_str) {
            self.link.staging.note(user, folder);
        }
        lock_is_held(&outcome)?;
        if outcome.failed {
            return Err(failed(&describe(&outcome)));
        }
        source.compare(&outcome).map_err(|what| failed(&what))?;
        let folder = outcome.data.get("folder").and_then(Value::as_str).unwrap_or_default();
        Ok(format!("{folder}/{name}"))
    }

    /// Reads a file of the target that fits into memory. A file that cannot be read is a failed outcome; `size` and `sha256`
    /// are in the outcome's data.
    pub async fn download(
        &self,
        remote: &str,
        into: &mut (dyn AsyncWrite + Send + Unpin),
    ) -> Result<Outcome, RemoteError> {
        self.download_up_to(remote, into, MEMORY_LIMIT).await
    }

    /// As [`Session::download`], with another limit: whatever the target sends, no more than that is written.
    pub async fn download_up_to(
        &self,
        remote: &str,
        into: &mut (dyn AsyncWrite + Send + Unpin),
        limit: ByteSize,
    ) -> Result<Outcome, RemoteError> {
        let payload = Payload::new(DOWNLOAD).value("path", remote);
        let segment = Segment { steps: vec![self.step(payload, false)] };
        let mut sink = Measured { limit: limit.0, ..Measured::new(into) };
        let received = self.exchange(&segment, &Deaf, None, Files::Into(&mut sink), None).await;
        if sink.is_too_large {
            let message = format!("cannot download {remote}: it has more than {limit}");
            return Err(RemoteError::Transfer(message.into()));
        }
        let outcome = only(received?)?;
        if outcome.failed {
            return Ok(outcome);
        }
        sink.compare(&outcome).map_err(|what| {
            RemoteError::Transfer(
                format!("cannot download {remote}: {what}; it may have changed during the transfer").into(),
            )
        })?;
        Ok(outcome.with("size", sink.size).with("sha256", sink.sum()))
    }
}

fn not_uploaded(local: &Path, what: &str) -> RemoteError {
    RemoteError::Transfer(Trouble::new(format!("cannot upload {}: {what}", local.display())))
}

fn describe(outcome: &Outcome) -> String {
    match outcome.stderr.trim() {
        "" => outcome.msg.clone(),
        errors => format!("{} ({errors})", outcome.msg),
    }
}

/// Counts and hashes what passes through.
struct Measured<T> {
    inner: T,
    size: u64,
    hash: Sha256,
    /// No more than this is written.
    limit: u64,
    is_too_large: bool,
}

impl<T> Measured<T> {
    fn new(inner: T) -> Self {
        Self { inner, size: 0, hash: Sha256::default(), limit: u64::MAX, is_too_large: false }
    }

    fn pass(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        self.hash.update(bytes);
    }

    fn sum(&self) -> String {
        hex(self.hash.clone().finish())
    }

    /// Whether the target saw the same bytes, as far as it can tell.
    fn compare(&self, outcome: &Outcome) -> Result<(), String> {
        let size = outcome.data.get("size").and_then(Value::as_u64);
        if let Some(size) = size.filter(|size| *size != self.size) {
            return Err(format!("{} bytes here, {size} there", self.size));
        }
        let sum = outcome.data.get("sha256").and_then(Value::as_str);
        match sum.filter(|sum| **sum != self.sum()) {
            Some(sum) => Err(format!("its sha256 is {} here and {sum} there", self.sum())),
            None => Ok(()),
        }
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Measured<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.pass(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Measured<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<std::io::Result<usize>> {
        if bytes.len() as u64 > self.limit - self.size {
            self.is_too_large = true;
            return Poll::Ready(Err(std::io::ErrorKind::FileTooLarge.into()));
        }
        let written = ready!(Pin::new(&mut self.inner).poll_write(cx, bytes))?;
        self.pass(&bytes[..written]);
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}
