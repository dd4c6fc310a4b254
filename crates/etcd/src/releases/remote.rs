//! Releases at a URL: asks for checksums and versions, and downloads. Everything is bounded in time, and a download that was interrupted is
//! continued.

use std::{
    collections::BTreeSet,
    fs::{File, OpenOptions, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    time::Duration,
};

use http_body_util::BodyExt;
use hyper::{Response, StatusCode, body::Incoming, header};
use tokio::time::timeout;

use super::{
    Arch, Place, ReleaseError,
    local::sum_of,
    place::{SUMS, sum_in, versions_in},
};
use crate::{
    digest::{Sha256, hex},
    http::{Client, Dial, HttpError, Trust, proxy, text},
    model::{ByteSize, Version},
};

/// How long an answer may take, and each piece of a body.
const PATIENCE: Duration = Duration::from_secs(30);
/// How long a list may take.
const LIST_LIMIT: Duration = Duration::from_secs(2 * 60);
/// How long a file may take, and how large it may be.
const LIMIT: Duration = Duration::from_secs(60 * 60);
const SIZE_LIMIT: u64 = 1 << 30;
/// More than any list of checksums, and more than any index.
const SUMS_LIMIT: usize = 1 << 20;
const INDEX_LIMIT: usize = 32 << 20;

/// What a download says while it lasts: the bytes that are there, and those of the whole if that is known.
pub type Progress<'a> = &'a mut (dyn FnMut(u64, Option<u64>) + Send);

/// What became of a download.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fetched {
    New,
    /// It was there already.
    Kept,
}

/// A place that is reached over HTTP.
pub struct Remote {
    place: Place,
    base: String,
    client: Client,
    dial: Box<dyn Dial>,
}

impl Remote {
    /// Nothing if the place is a directory.
    pub fn open(place: &Place) -> Result<Option<Self>, ReleaseError> {
        let Some(base) = place.base() else { return Ok(None) };
        let dial = proxy::dial_for(base)?;
        Ok(Some(Self { place: place.clone(), base: base.to_owned(), client: Client::new(Trust::System)?, dial }))
    }

    /// Where the tarball of a release is.
    pub fn url(&self, version: Version, arch: Arch) -> String {
        format!("{}/v{version}/{}", self.base, arch.tarball(version))
    }

    /// The published checksum of a release's tarball.
    pub async fn sum(&self, version: Version, arch: Arch) -> Result<String, ReleaseError> {
        let url = format!("{}/v{version}/{SUMS}", self.base);
        let answer = self.get(&url, 0).await.map_err(|error| self.absent(error, version))?;
        let text = bounded(LIST_LIMIT, text(answer, SUMS_LIMIT)).await?;
        sum_in(&text, &arch.tarball(version), &url)
    }

    /// Whether a file is there. It is not downloaded.
    pub async fn answers(&self, url: &str) -> Result<(), ReleaseError> {
        self.get(url, 0).await.map(drop)
    }

    /// The releases that the place lists.
    pub async fn versions(&self) -> Result<BTreeSet<Version>, ReleaseError> {
        let Some(index) = self.place.index() else { return Ok(BTreeSet::new()) };
        let text = bounded(LIST_LIMIT, text(self.get(&index, 0).await?, INDEX_LIMIT)).await?;
        let versions = versions_in(&text);
        if versions.is_empty() { Err(ReleaseError::NoIndex { place: index }) } else { Ok(versions) }
    }

    /// Downloads a file that has this checksum. What was there of it before is continued.
    pub async fn fetch(
        &self,
        url: &str,
        to: &Path,
        sha256: &str,
        progress: Progress<'_>,
    ) -> Result<Fetched, ReleaseError> {
        if to.exists() {
            let found = sum_of(to)?;
            if found == sha256 {
                return Ok(Fetched::Kept);
            }
            return Err(ReleaseError::Differs { what: to.display().to_string(), found, expected: sha256.to_owned() });
        }
        let mut part = Part::open(to)?;
        let filled = timeout(LIMIT, self.fill(url, &mut part, sha256, progress)).await;
        let filled = filled.unwrap_or_else(|_| Err(part.interrupted(url, &format!("it took longer than {LIMIT:?}"))));
        if filled.is_err() && part.size == 0 {
            part.remove();
        }
        filled?;
        part.keep_as(to)?;
        Ok(Fetched::New)
    }

    async fn fill(&self, url: &str, part: &mut Part, sha256: &str, progress: Progress<'_>) -> Result<(), ReleaseError> {
        let is_continued = part.size > 0;
        let mut found = self.append(url, part, &mut *progress).await?;
        if found != sha256 && is_continued {
            // What there was may be damaged, or of another file: only the whole of it tells.
            part.clear()?;
            found = self.append(url, part, progress).await?;
        }
        if found == sha256 {
            return Ok(());
        }
        part.remove();
        Err(ReleaseError::Differs { what: url.to_owned(), found, expected: sha256.to_owned() })
    }

    /// Downloads what is missing, and returns the checksum of all.
    async fn append(&self, url: &str, part: &mut Part, progress: Progress<'_>) -> Result<String, ReleaseError> {
        let answer = match self.get(url, part.size).await {
            // There is no more of it.
            Err(ReleaseError::Http(HttpError::Status { status: StatusCode::RANGE_NOT_SATISFIABLE, .. })) => {
                return Ok(part.sum());
            }
            answer => answer?,
        };
        if answer.status() != StatusCode::PARTIAL_CONTENT {
            part.clear()?;
        }
        let length = answer.headers().get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse().ok());
        let total = length.map(|length: u64| length.saturating_add(part.size));
        let mut body = answer.into_body();
        progress(part.size, total);
        loop {
            let frame = match timeout(PATIENCE, body.frame()).await {
                Ok(None) => return Ok(part.sum()),
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(part.interrupted(url, &error.to_string())),
                Err(_) => return Err(part.interrupted(url, &format!("no data within {PATIENCE:?}"))),
            };
            if let Some(data) = frame.data_ref() {
                part.write(data)?;
                progress(part.size, total);
            }
            if part.size > SIZE_LIMIT {
                part.remove();
                return Err(ReleaseError::TooLarge { url: url.to_owned(), limit: ByteSize(SIZE_LIMIT) });
            }
        }
    }

    async fn get(&self, url: &str, from: u64) -> Result<Response<Incoming>, ReleaseError> {
        bounded(PATIENCE, self.client.download_from(url, from, &*self.dial)).await
    }

    /// A version that is not there answers like any other missing page.
    fn absent(&self, error: ReleaseError, version: Version) -> ReleaseError {
        match error {
            ReleaseError::Http(HttpError::Status { status: StatusCode::NOT_FOUND, .. }) => {
                ReleaseError::Absent { version, place: self.base.clone() }
            }
            other => other,
        }
    }
}

/// Whether a URL can be downloaded, wherever it is. Nothing is downloaded.
pub async fn answers(url: &str) -> Result<(), ReleaseError> {
    let (client, dial) = (Client::new(Trust::System)?, proxy::dial_for(url)?);
    bounded(PATIENCE, client.download(url, &*dial)).await.map(drop)
}

async fn bounded<T>(limit: Duration, work: impl Future<Output = Result<T, HttpError>>) -> Result<T, ReleaseError> {
    Ok(timeout(limit, work).await.unwrap_or(Err(HttpError::TimedOut(limit)))?)
}

/// A download that is not whole, next to where it will be. It stays when the download is interrupted, and the next one continues it.
struct Part {
    path: PathBuf,
    file: File,
    size: u64,
    sum: Sha256,
}

impl Part {
    /// One process at a time has it.
    fn open(to: &Path) -> Result<Self, ReleaseError> {
        let mut name = to.as_os_str().to_owned();
        name.push(".part");
        let path = PathBuf::from(name);
        let failed = |error| ReleaseError::disk(&path, error);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) if is_at(&file, &path) => {}
            // The other one has just made it the file that was wanted, or removed it.
            Ok(()) | Err(TryLockError::WouldBlock) => return Err(ReleaseError::Busy(to.to_owned())),
            Err(TryLockError::Error(error)) => return Err(failed(error)),
        }
        let mut part = Self { path: path.clone(), file, size: 0, sum: Sha256::default() };
        part.read().map_err(failed)?;
        Ok(part)
    }

    /// What is there counts as downloaded.
    fn read(&mut self) -> io::Result<()> {
        let mut buffer = vec![0; 256 * 1024];
        loop {
            match self.file.read(&mut buffer)? {
                0 => return Ok(()),
                count => {
                    self.sum.update(&buffer[..count]);
                    self.size += count as u64;
                }
            }
        }
    }

    fn write(&mut self, data: &[u8]) -> Result<(), ReleaseError> {
        self.file.write_all(data).map_err(|error| ReleaseError::disk(&self.path, error))?;
        self.sum.update(data);
        self.size += data.len() as u64;
        Ok(())
    }

    fn clear(&mut self) -> Result<(), ReleaseError> {
        let cleared = self.file.set_len(0).and_then(|()| self.file.rewind());
        (self.size, self.sum) = (0, Sha256::default());
        cleared.map_err(|error| ReleaseError::disk(&self.path, error))
    }

    fn sum(&self) -> String {
        hex(self.sum.clone().finish())
    }

    fn interrupted(&self, url: &str, why: &str) -> ReleaseError {
        let size = ByteSize(self.size).to_string();
        ReleaseError::Interrupted { url: url.to_owned(), size, why: why.to_owned() }
    }

    /// It is of no use to anybody.
    fn remove(&self) {
        // If it stays, the next download finds that out too.
        let _ = std::fs::remove_file(&self.path);
    }

    fn keep_as(self, to: &Path) -> Result<(), ReleaseError> {
        let kept = self.file.sync_all().and_then(|()| std::fs::rename(&self.path, to));
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let kept = kept.and_then(|()| File::open(folder)?.sync_all());
        kept.map_err(|error| ReleaseError::disk(to, error))
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    let place = |metadata: std::fs::Metadata| (metadata.dev(), metadata.ino());
    file.metadata().is_ok_and(|open| std::fs::metadata(path).is_ok_and(|found| place(found) == place(open)))
}
