//! A snapshot: streamed from a member, and told whole from cut off.
//!
//! What comes is the database, whose size is a multiple of 512, and behind it the sha256 of that, which the sender has calculated of
//! what it has: so the pages are looked at as well, each of them. Only so much is in memory as one message holds, and where pages
//! lead to.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
    time::Duration,
};

use etcd_client::{SnapshotResponse, SnapshotStreaming};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{EtcdError, MemberClient, Pace, pipe::pipe, restore::Walk};
use crate::digest::{Sha256, hex};
use etcdrun_base::mutant::{is_off, repair};

const SUM: usize = 32;
const PAGE: u64 = 512;
/// What is synced at once. A disk that gets a gigabyte at the end keeps everybody else on it waiting for seconds, members
/// of the cluster too if they share it.
const SYNCED: u64 = 4 * 1024 * 1024;
/// What is written at once.
const PIECE: usize = 1024 * 1024;
/// A member that sends nothing for so long sends nothing more.
const SILENCE: Duration = Duration::from_secs(60);
/// How long the first piece may take on the straight way; on the other one it has more time.
const FIRST_PIECE: Duration = Duration::from_secs(5);

/// What a whole snapshot is like.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    pub size: u64,
    /// The sum that is at its end, in hexadecimal.
    pub sha256: String,
}

#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    #[error("cannot write the snapshot: {0}")]
    Io(#[from] io::Error),
    #[error("the snapshot is incomplete: {0}")]
    Broken(String),
    #[error("the snapshot arrived as it was sent, and is damaged: {0}")]
    Damaged(String),
}

/// Knows what has gone by, and keeps the last bytes back, which are the sum.
#[derive(Default)]
struct Check {
    sum: Sha256,
    walk: Walk,
    size: u64,
    tail: Vec<u8>,
}

impl Check {
    fn update(&mut self, bytes: &[u8]) {
        self.size += bytes.len() as u64;
        let known = (self.tail.len() + bytes.len()).saturating_sub(SUM);
        let (old, new) = (known.min(self.tail.len()), known.saturating_sub(self.tail.len()));
        for known in [&self.tail[..old], &bytes[..new]] {
            self.sum.update(known);
            self.walk.feed(known);
        }
        self.tail.drain(..old);
        self.tail.extend_from_slice(&bytes[new..]);
    }

    fn end(self) -> Result<Snapshot, SnapshotError> {
        let Self { sum, walk, size, tail } = self;
        if !could_be(size) {
            return Err(SnapshotError::Broken(format!("{size} bytes are not a database with its checksum")));
        }
        if tail != sum.finish() && !is_off(repair::SNAPSHOT_SUM) {
            return Err(SnapshotError::Broken("its checksum does not match".into()));
        }
        walk.end().map_err(|error| SnapshotError::Damaged(error.to_string()))?;
        Ok(Snapshot { size, sha256: hex(&tail) })
    }
}

/// Writes a member's snapshot. Only if this returns what it is like is all of it there.
pub async fn stream(
    member: &MemberClient,
    into: &mut (dyn AsyncWrite + Send + Unpin),
    mut pace: Pace,
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> Result<Snapshot, SnapshotError> {
    let (mut stream, mut next) = match straight(member).await {
        Some(begun) => begun,
        None => begin(member, SILENCE).await?,
    };
    let mut check = Check::default();
    while let Some(message) = next {
        check.update(message.blob());
        into.write_all(message.blob()).await?;
        progress(check.size, check.size + message.remaining_bytes());
        pace.keep(message.blob().len()).await;
        next = following(member, &mut stream, SILENCE).await?;
    }
    into.flush().await?;
    check.end()
}

/// A snapshot that comes straight. Where the first piece does not come, small packets find a way and large ones do not.
async fn straight(member: &MemberClient) -> Option<(SnapshotStreaming, Option<SnapshotResponse>)> {
    begin(&member.straight().await?, FIRST_PIECE).await.ok()
}

/// Asks for a snapshot, and waits for its first piece.
async fn begin(
    member: &MemberClient,
    limit: Duration,
) -> Result<(SnapshotStreaming, Option<SnapshotResponse>), EtcdError> {
    let mut client = member.client().await?;
    let mut stream = member.bounded(client.snapshot()).await?;
    let first = following(member, &mut stream, limit).await?;
    Ok((stream, first))
}

async fn following(
    member: &MemberClient,
    stream: &mut SnapshotStreaming,
    limit: Duration,
) -> Result<Option<SnapshotResponse>, EtcdError> {
    let next = tokio::time::timeout(limit, stream.message()).await;
    let next = next.map_err(|_| EtcdError::TimedOut { member: member.name.to_string(), limit })?;
    next.map_err(|error| EtcdError::of(&member.name, &error))
}

/// Writes a member's snapshot to a file, gently. If this returns what it is like, all of it is on the disk.
pub async fn save(
    member: &MemberClient,
    file: File,
    pace: Pace,
    progress: &(dyn Fn(u64, u64) + Send + Sync),
) -> Result<Snapshot, SnapshotError> {
    // Each side has its end to itself, so that the other hears when it is over.
    let (mut writer, mut reader) = pipe();
    let send = async move { stream(member, &mut writer, pace, progress).await };
    let keep = async move {
        // Each write is one of a thread's, and few large ones are cheaper than many small ones.
        let mut file = tokio::io::BufWriter::with_capacity(PIECE, tokio::fs::File::from_std(file));
        while tokio::io::copy_buf(&mut (&mut reader).take(SYNCED), &mut file).await? > 0 {
            file.flush().await?;
            file.get_ref().sync_data().await?;
        }
        file.get_ref().sync_all().await
    };
    match tokio::join!(send, keep) {
        // When writing fails, the sender only hears that nobody listens any more.
        (Err(SnapshotError::Io(_)) | Ok(_), Err(error)) => Err(error.into()),
        (sent, _) => sent,
    }
}

/// Reads a snapshot on disk from end to end.
pub fn verify(path: &Path) -> Result<Snapshot, SnapshotError> {
    read_through(&mut File::open(path)?, &mut io::sink())
}

/// Whether this is the size of a database and its checksum.
pub fn could_be(size: u64) -> bool {
    size % PAGE == SUM as u64
}

/// How long ago a snapshot on disk was written. One that is said to be of the future has no age, which no limit allows.
pub fn age(path: &Path) -> Option<Duration> {
    let written = path.metadata().and_then(|file| file.modified()).ok()?;
    Some(written.elapsed().unwrap_or(Duration::MAX))
}

/// Reads a snapshot from end to end, and passes it on. Only if this returns what it is like was it a whole one.
pub fn read_through(from: &mut dyn Read, into: &mut dyn Write) -> Result<Snapshot, SnapshotError> {
    let mut check = Check::default();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        let count = match from.read(&mut buffer) {
            Ok(0) => break,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error.into()),
        };
        check.update(&buffer[..count]);
        into.write_all(&buffer[..count])?;
    }
    into.flush()?;
    check.end()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{
        digest::sha256,
        etcd::restore::testing::{PAGE, database},
    };

    fn whole(leaves: usize) -> Vec<u8> {
        with_sum(database(leaves as u64))
    }

    fn with_sum(mut bytes: Vec<u8>) -> Vec<u8> {
        bytes.extend(sha256(&bytes));
        bytes
    }

    fn checked(bytes: &[u8], piece: usize) -> Result<Snapshot, SnapshotError> {
        let mut check = Check::default();
        bytes.chunks(piece).for_each(|piece| check.update(piece));
        check.end()
    }

    #[test]
    fn what_is_cut_off_or_changed_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshot.db");
        let bytes = whole(4);
        std::fs::write(&path, &bytes).unwrap();
        assert_eq!(verify(&path).unwrap().size, bytes.len() as u64);
        std::fs::write(&path, &bytes[..bytes.len() - 512]).unwrap();
        assert!(verify(&path).unwrap_err().to_string().contains("checksum does not match"));
        std::fs::write(&path, &bytes[..bytes.len() - 32]).unwrap();
        assert!(verify(&path).unwrap_err().to_string().contains("not a database with its checksum"));
        std::fs::write(&path, "").unwrap();
        assert!(verify(&path).is_err());
    }

    #[test]
    fn what_was_damaged_before_it_was_sent_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("snapshot.db");
        let mut bytes = database(50);
        bytes[20 * PAGE..21 * PAGE].fill(0);
        std::fs::write(&path, with_sum(bytes)).unwrap();
        let told = verify(&path).unwrap_err().to_string();
        assert!(told.contains("arrived as it was sent") && told.contains("page 20 is damaged"), "{told}");
    }

    proptest! {
        #[test]
        fn in_whatever_pieces_it_comes_one_byte_makes_the_difference(
            pages in 1usize..8,
            piece in 1usize..3000,
            at in any::<prop::sample::Index>(),
        ) {
            let mut bytes = whole(pages);
            prop_assert!(checked(&bytes, piece).is_ok());
            let at = at.index(bytes.len());
            bytes[at] ^= 1;
            prop_assert!(checked(&bytes, piece).is_err());
        }
    }
}
