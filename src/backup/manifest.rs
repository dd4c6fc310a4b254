//! What is known of a backup, in a small file beside it. What has no manifest is no backup.

use futures_util::{StreamExt, TryStreamExt, stream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{BackupError, Store};

const FORMAT: u32 = 1;
/// How many manifests are read at once.
const AT_ONCE: usize = 16;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    pub format: u32,
    pub cluster: String,
    /// In hexadecimal.
    pub cluster_id: String,
    /// All up to this revision is in it.
    pub revision: i64,
    pub taken: Timestamp,
    /// The member it was taken from, and what that ran.
    pub member: String,
    pub etcd_version: String,
    /// The snapshot's own size, and the checksum at its end.
    pub size: u64,
    pub sha256: String,
    /// What etcd itself calculated of its keys and values.
    pub hash: Option<Hash>,
    /// The file beside this one; its size and checksum.
    pub file: String,
    pub stored_size: u64,
    pub stored_sha256: String,
    /// Who can open it; nobody has to if there are none.
    pub recipients: Vec<String>,
    pub etcdrun: String,
}

/// HashKV of etcd: what any member answers for the same revision and compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Hash {
    pub hash: u32,
    pub revision: i64,
    pub compact_revision: i64,
}

/// What the names of a backup begin with.
pub(crate) fn stem(cluster: &str, revision: i64, taken: Timestamp) -> String {
    format!("{cluster}-r{revision}-{}", taken.strftime("%Y%m%dT%H%M%SZ"))
}

impl Manifest {
    pub const FORMAT: u32 = FORMAT;

    /// Its own name.
    pub fn name(&self) -> String {
        format!("{}.json", stem(&self.cluster, self.revision, self.taken))
    }

    pub fn text(&self) -> Vec<u8> {
        // Such plain types always have a JSON form.
        serde_json::to_vec_pretty(self).unwrap_or_default()
    }
}

async fn read_manifest(store: &Store, name: &str) -> Result<Manifest, BackupError> {
    let wrong = |why: String| BackupError::Manifest { name: store.call(name), why };
    let bytes = store.read_small(name).await?;
    let manifest: Manifest = serde_json::from_slice(&bytes).map_err(|error| wrong(error.to_string()))?;
    if manifest.format != FORMAT {
        return Err(wrong(format!("its format is {}, and this etcdrun reads {FORMAT}", manifest.format)));
    }
    // A file elsewhere is not what stands beside the manifest.
    if manifest.file.contains('/') || manifest.name() != name {
        return Err(wrong("its names do not fit".into()));
    }
    Ok(manifest)
}

/// The backups of a cluster, the newest first.
pub(crate) async fn backups(store: &Store, cluster: &str) -> Result<Vec<Manifest>, BackupError> {
    let beginning = format!("{cluster}-r");
    let is_one = |name: &str| {
        let rest = name.strip_prefix(&beginning).and_then(|rest| rest.strip_suffix(".json"));
        rest.is_some_and(|rest| rest.split_once('-').is_some_and(|(revision, _)| revision.parse::<i64>().is_ok()))
    };
    let names: Vec<String> =
        store.list().await?.into_iter().map(|(name, _)| name).filter(|name| is_one(name)).collect();
    let reading = stream::iter(names).map(|name| async move { read_manifest(store, &name).await });
    let mut found: Vec<Manifest> = reading.buffer_unordered(AT_ONCE).try_collect().await?;
    // `shop-r2-r57-…` begins like a backup of `shop`, and is one of `shop-r2`.
    found.retain(|manifest| manifest.cluster == cluster);
    found.sort_by_key(|manifest| std::cmp::Reverse((manifest.taken, manifest.revision)));
    Ok(found)
}

/// The newest of them that was there at a time.
pub(crate) fn newest(backups: &[Manifest], at: Option<Timestamp>) -> Option<&Manifest> {
    backups.iter().find(|manifest| at.is_none_or(|at| manifest.taken <= at))
}
