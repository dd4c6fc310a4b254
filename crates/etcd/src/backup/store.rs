//! A folder or a bucket, by the few things that backups need of it.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use futures_util::TryStreamExt;
use jiff::Timestamp;
use object_store::{
    Certificate, ClientOptions, ObjectStore, ObjectStoreExt, RetryConfig,
    aws::{AmazonS3Builder, AmazonS3ConfigKey},
    buffered::BufWriter,
    path::Path as Key,
};
use tokio::{
    fs,
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
};
use tokio_util::io::{StreamReader, SyncIoBridge};

use super::{Access, BackupError, Place};

/// What is sent at once, and how many of these are under way: together they bound the memory. S3 takes 10,000 of them.
const PART: usize = 16 << 20;
const PARTS_AT_ONCE: usize = 3;
/// More is no manifest, however many recipients it names.
const SMALL: u64 = 256 << 10;
/// Credentials that the environment has in other ways than by keys.
const OTHER_CREDENTIALS: [&str; 4] = [
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_SKIP_SIGNATURE",
];

#[derive(Clone)]
pub enum Store {
    Folder(PathBuf),
    Bucket { store: Arc<dyn ObjectStore>, bucket: String, prefix: Key },
}

/// Something in a store.
#[derive(Clone, Debug)]
pub struct Entry {
    pub name: String,
    /// When it was last written to.
    pub modified: Option<Timestamp>,
}

/// Something under way to a store, from a thread that may wait. It has its name only once it is kept.
pub enum Sink {
    File { part: PathBuf, dest: PathBuf, file: File },
    Object { writer: SyncIoBridge<Box<BufWriter>>, what: String },
}

impl Store {
    pub fn open(place: &Place, access: &Access) -> Result<Self, BackupError> {
        match place {
            Place::Folder(path) => Ok(Self::Folder(path.clone())),
            Place::Bucket { bucket, prefix } => {
                let wrong = |why: String| BackupError::Settings { place: place.to_string(), why };
                let prefix = Key::parse(prefix).map_err(|error| wrong(error.to_string()))?;
                let store = bucket_store(place, bucket, access)?;
                Ok(Self::Bucket { store, bucket: bucket.clone(), prefix })
            }
        }
    }

    /// What messages call something in it.
    pub fn call(&self, name: &str) -> String {
        match self {
            Self::Folder(folder) => folder.join(name).display().to_string(),
            Self::Bucket { bucket, prefix, .. } => format!("s3:{bucket}/{}", prefix.clone().join(name)),
        }
    }

    /// The files that are in it.
    pub async fn list(&self) -> Result<Vec<Entry>, BackupError> {
        match self {
            Self::Folder(folder) => {
                let what = || format!("directory {}", folder.display());
                let mut entries = fs::read_dir(folder).await.map_err(|error| match error.kind() {
                    io::ErrorKind::NotFound => BackupError::NoPlace(what()),
                    _ => BackupError::io(what(), &error),
                })?;
                let mut found = Vec::new();
                while let Some(entry) = entries.next_entry().await.map_err(|error| BackupError::io(what(), &error))? {
                    let metadata = entry.metadata().await.ok();
                    if metadata.as_ref().is_some_and(std::fs::Metadata::is_dir) {
                        continue;
                    }
                    let modified = metadata.and_then(|metadata| Timestamp::try_from(metadata.modified().ok()?).ok());
                    found.push(Entry { name: entry.file_name().to_string_lossy().into_owned(), modified });
                }
                Ok(found)
            }
            Self::Bucket { store, bucket, prefix } => {
                let objects = store.list_with_delimiter(Some(prefix)).await;
                let objects = objects.map_err(|error| s3_error(format!("list s3:{bucket}/{prefix}"), bucket, error))?;
                let named = objects.objects.into_iter().map(|object| Entry {
                    name: object.location.filename().unwrap_or_default().to_owned(),
                    modified: Timestamp::from_second(object.last_modified.timestamp()).ok(),
                });
                Ok(named.collect())
            }
        }
    }

    pub async fn sink(&self, name: &str) -> Result<Sink, BackupError> {
        match self {
            Self::Folder(folder) => {
                let dest = folder.join(name);
                let part = folder.join(format!("{name}.part"));
                let made = fs::create_dir_all(folder).await;
                made.map_err(|error| BackupError::io(format!("create the directory {}", folder.display()), &error))?;
                let file = create_part(&part);
                let file = file.map_err(|error| BackupError::io(format!("write {}", part.display()), &error))?;
                Ok(Sink::File { part, dest, file })
            }
            Self::Bucket { store, prefix, .. } => {
                let key = prefix.clone().join(name);
                let writer = BufWriter::with_capacity(store.clone(), key, PART).with_max_concurrency(PARTS_AT_ONCE);
                Ok(Sink::Object {
                    writer: SyncIoBridge::new(Box::new(writer)),
                    what: format!("write {}", self.call(name)),
                })
            }
        }
    }

    /// A few bytes under a name, all of them or none.
    pub async fn put(&self, name: &str, bytes: &[u8]) -> Result<(), BackupError> {
        match self {
            Self::Folder(_) => {
                let mut sink = self.sink(name).await?;
                match sink.write_all(bytes) {
                    Ok(()) => sink.keep().await,
                    Err(error) => Err(sink.refuses(&error)),
                }
            }
            Self::Bucket { store, bucket, prefix } => {
                let put = store.put(&prefix.clone().join(name), bytes.to_vec().into()).await;
                put.map(drop).map_err(|error| s3_error(format!("write {}", self.call(name)), bucket, error))
            }
        }
    }

    pub async fn read(&self, name: &str) -> Result<Box<dyn AsyncRead + Send + Unpin>, BackupError> {
        match self {
            Self::Folder(folder) => match fs::File::open(folder.join(name)).await {
                Ok(file) => Ok(Box::new(file)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Err(BackupError::Missing { name: self.call(name) })
                }
                Err(error) => Err(BackupError::io(format!("read {}", self.call(name)), &error)),
            },
            Self::Bucket { store, bucket, prefix } => match store.get(&prefix.clone().join(name)).await {
                Ok(found) => Ok(Box::new(StreamReader::new(found.into_stream().map_err(io::Error::other)))),
                Err(object_store::Error::NotFound { .. }) => Err(BackupError::Missing { name: self.call(name) }),
                Err(error) => Err(s3_error(format!("read {}", self.call(name)), bucket, error)),
            },
        }
    }

    pub async fn read_small(&self, name: &str) -> Result<Vec<u8>, BackupError> {
        let mut bytes = Vec::new();
        let read = self.read(name).await?.take(SMALL).read_to_end(&mut bytes).await;
        read.map_err(|error| BackupError::io(format!("read {}", self.call(name)), &error))?;
        Ok(bytes)
    }

    /// Gone already is gone.
    pub async fn remove(&self, name: &str) -> Result<(), BackupError> {
        match self {
            Self::Folder(folder) => match fs::remove_file(folder.join(name)).await {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    Err(BackupError::io(format!("remove {}", self.call(name)), &error))
                }
                _ => Ok(()),
            },
            Self::Bucket { store, bucket, prefix } => match store.delete(&prefix.clone().join(name)).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(s3_error(format!("remove {}", self.call(name)), bucket, error)),
            },
        }
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File { file, .. } => file.write(bytes),
            Self::Object { writer, .. } => writer.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File { file, .. } => file.flush(),
            Self::Object { writer, .. } => writer.flush(),
        }
    }
}

impl Sink {
    /// What it means that nothing could be written.
    pub fn refuses(&self, error: &io::Error) -> BackupError {
        match self {
            Self::File { part, .. } => BackupError::io(format!("write {}", part.display()), error),
            Self::Object { what, .. } => sent_error(what.clone(), error),
        }
    }

    /// All of it is there: it stays, also when the machine fails right after, and gets its name.
    pub async fn keep(self) -> Result<(), BackupError> {
        match self {
            Self::File { part, dest, file } => {
                let what = format!("write {}", dest.display());
                let kept = async {
                    fs::File::from_std(file).sync_all().await?;
                    fs::rename(&part, &dest).await?;
                    fs::File::open(dest.parent().unwrap_or(Path::new("."))).await?.sync_all().await
                };
                kept.await.map_err(|error| BackupError::io(what, &error))
            }
            Self::Object { writer, what } => {
                writer.into_inner().shutdown().await.map_err(|error| sent_error(what, &error))
            }
        }
    }

    /// Nothing of it stays.
    pub async fn abandon(self) {
        match self {
            // What cannot be taken away never gets a name, and goes another day.
            Self::File { part, .. } => drop(fs::remove_file(part).await),
            Self::Object { writer, .. } => drop(writer.into_inner().abort().await),
        }
    }
}

/// A file of our own. In a folder that others can write to, one of that name may be a link of theirs, or be open for them.
fn create_part(part: &Path) -> io::Result<File> {
    let create = || OpenOptions::new().write(true).create_new(true).mode(0o600).open(part);
    match create() {
        // What a crash has left, most likely. A link goes itself, and not what it points to.
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            std::fs::remove_file(part)?;
            create()
        }
        made => made,
    }
}

fn bucket_store(place: &Place, bucket: &str, access: &Access) -> Result<Arc<dyn ObjectStore>, BackupError> {
    let wrong = |why: String| BackupError::Settings { place: place.to_string(), why };
    let mut builder = AmazonS3Builder::from_env().with_bucket_name(bucket);
    if let Some(endpoint) = &access.endpoint {
        builder = builder.with_endpoint(endpoint);
    }
    if let Some(region) = &access.region {
        builder = builder.with_region(region);
    }
    if let (Some(id), Some(key)) = (&access.access_key_id, &access.secret_access_key) {
        builder = builder.with_access_key_id(id).with_secret_access_key(key);
    }
    let knows = |key: AmazonS3ConfigKey| builder.get_config_value(&key).is_some();
    let others = OTHER_CREDENTIALS.iter().any(|name| std::env::var_os(name).is_some());
    let has_keys = knows(AmazonS3ConfigKey::AccessKeyId) && knows(AmazonS3ConfigKey::SecretAccessKey);
    if !others && !has_keys {
        return Err(BackupError::NoCredentials(place.to_string()));
    }
    let endpoint = builder.get_config_value(&AmazonS3ConfigKey::Endpoint);
    let mut client = ClientOptions::new()
        .with_allow_http(endpoint.is_some_and(|url| url.starts_with("http://")))
        // A large object takes its time; a silent server does not get it.
        .with_timeout_disabled()
        .with_connect_timeout(Duration::from_secs(10))
        .with_read_timeout(Duration::from_secs(60));
    if let Some(path) = &access.ca {
        let pem = std::fs::read(path).map_err(|error| wrong(format!("{}: {error}", path.display())))?;
        let found =
            Certificate::from_pem_bundle(&pem).map_err(|error| wrong(format!("{}: {error}", path.display())))?;
        if found.is_empty() {
            return Err(wrong(format!("{} contains no certificate", path.display())));
        }
        client = found.into_iter().fold(client, ClientOptions::with_root_certificate);
    }
    let retry = RetryConfig { max_retries: 4, retry_timeout: Duration::from_secs(60), ..RetryConfig::default() };
    let store = builder.with_client_options(client).with_retry(retry).build();
    Ok(Arc::new(store.map_err(|error| wrong(error.to_string()))?))
}

/// What the writer's own error is, if it is one of the store's.
fn sent_error(what: String, error: &io::Error) -> BackupError {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref::<object_store::Error>());
    match inner {
        Some(error) => refused(what, error),
        None => BackupError::io(what, error),
    }
}

fn s3_error(what: String, bucket: &str, error: object_store::Error) -> BackupError {
    if is_no_bucket(&error) {
        return BackupError::NoPlace(format!("bucket `{bucket}`"));
    }
    refused(what, &error)
}

fn is_no_bucket(error: &object_store::Error) -> bool {
    text(error).contains("NoSuchBucket")
}

fn refused(what: String, error: &object_store::Error) -> BackupError {
    let why = text(error);
    match error {
        _ if is_no_bucket(error) => BackupError::NoPlace("bucket of that name".into()),
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. } => {
            BackupError::Forbidden { what, why: "the credentials do not allow it".into() }
        }
        _ if why.contains("AccessDenied")
            || why.contains("SignatureDoesNotMatch")
            || why.contains("InvalidAccessKey") =>
        {
            BackupError::Forbidden { what, why: "the credentials do not allow it".into() }
        }
        _ if is_by_a_stranger(&why) => {
            BackupError::Failed { what, why: format!("{why}; name a file with its CA by `--s3-ca`") }
        }
        _ => BackupError::Failed { what, why },
    }
}

/// Whether a certificate is from an authority that is not known; another one may have the same name.
fn is_by_a_stranger(why: &str) -> bool {
    ["UnknownIssuer", "BadSignature"].iter().any(|fault| why.contains(&format!("invalid peer certificate: {fault}")))
}

/// An error with its causes, each once.
fn text(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let more = error.to_string();
        if !text.contains(&more) {
            text += &format!(": {more}");
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    #[tokio::test]
    async fn a_part_is_a_new_file_whatever_others_put_there() {
        let folder = tempfile::tempdir().unwrap();
        let (victim, part) = (folder.path().join("victim"), folder.path().join("x.part"));
        std::fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, &part).unwrap();
        let store = Store::Folder(folder.path().to_owned());
        store.put("x", b"mine").await.unwrap();
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "precious");
        let kept = std::fs::symlink_metadata(folder.path().join("x")).unwrap();
        assert!(kept.is_file() && kept.mode() & 0o777 == 0o600);
        // One that somebody else holds open is not written to.
        std::fs::write(&part, "").unwrap();
        let held = File::open(&part).unwrap();
        store.put("x", b"mine").await.unwrap();
        assert_eq!(held.metadata().unwrap().len(), 0);
    }
}
