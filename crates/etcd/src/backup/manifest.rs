//! What is known of a backup, in a small file beside it. What has no manifest is no backup.

use futures_util::{StreamExt, stream};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::{BackupError, Store, store::Entry, trust::Mac};

const FORMAT: u32 = 1;
/// How many manifests are read at once.
const AT_ONCE: usize = 16;
/// No backup takes as long.
const LEFT_AFTER_HOURS: i64 = 24;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
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
    /// What proves that all of this was written by somebody with the cluster's backup key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mac: Option<Mac>,
}

/// HashKV of etcd: what any member answers for the same revision and compaction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hash {
    pub hash: u32,
    pub revision: i64,
    pub compact_revision: i64,
}

impl Hash {
    /// False if the two tell nothing about each other: the cluster was compacted while the backup was taken.
    pub fn equals(&self, found: &Self) -> Result<bool, String> {
        let Self { hash, revision, compact_revision } = self;
        // A cluster that never was compacted says 0 or -1.
        if *compact_revision.max(&0) != found.compact_revision.max(0) {
            return Ok(false);
        }
        match found.hash {
            same if same == *hash => Ok(true),
            other => {
                Err(format!("at revision {revision} its hash is {other}, and it was {hash} when the backup was taken"))
            }
        }
    }
}

/// What the names of a backup begin with.
pub fn stem(cluster: &str, revision: i64, taken: Timestamp) -> String {
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
        return Err(wrong(format!("its format is {}, and this etcdrun supports {FORMAT}", manifest.format)));
    }
    // A file elsewhere is not what stands beside the manifest.
    if manifest.file.contains('/') || manifest.name() != name {
        return Err(wrong("its names do not match".into()));
    }
    Ok(manifest)
}

/// What a store has of a cluster.
#[derive(Debug, Default)]
pub struct Kept {
    /// The newest first.
    pub backups: Vec<Manifest>,
    /// Manifests that cannot be read. What belongs to them is nobody's to remove.
    pub damaged: Vec<Damaged>,
    /// What backups have left that never came to their end, and what they were to take the place of.
    pub leftovers: Vec<Entry>,
}

/// A manifest that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Damaged {
    pub name: String,
    pub revision: i64,
    pub taken: Timestamp,
    pub why: String,
}

impl Kept {
    /// Those that cannot be read, and would come before a backup.
    pub fn damaged_since<'a>(
        &'a self,
        manifest: &'a Manifest,
        at: Option<Timestamp>,
    ) -> impl Iterator<Item = &'a Damaged> {
        let fits = move |it: &&Damaged| it.taken > manifest.taken && at.is_none_or(|at| it.taken <= at);
        self.damaged.iter().filter(fits)
    }
}

/// The revision and the time of a name that begins like one of a cluster's, and what is behind them: `.json`, `.db.zst` and so on.
fn parts<'n>(name: &'n str, cluster: &str) -> Option<(i64, Timestamp, &'n str)> {
    let rest = name.strip_prefix(cluster)?.strip_prefix("-r")?;
    let (revision, rest) = rest.split_once('-')?;
    let (time, ending) = rest.split_at(rest.find('.')?);
    let civil = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok()?;
    let taken = civil.to_zoned(jiff::tz::TimeZone::UTC).ok()?.timestamp();
    let revision = revision.parse().ok()?;
    // A name that is written another way is none of ours.
    name.strip_suffix(ending)
        .is_some_and(|start| start == stem(cluster, revision, taken))
        .then_some((revision, taken, ending))
}

/// Whether a backup or a change of keys writes files that end so, beside the manifest.
fn is_ours(ending: &str) -> bool {
    let ending = ending.strip_suffix(".part").unwrap_or(ending);
    let data = ending.strip_suffix(".age").unwrap_or(ending).strip_suffix(".db.zst");
    let is_number = |text: &str| text.strip_prefix('.').is_some_and(|number| number.parse::<u32>().is_ok());
    ending == ".json" || data.is_some_and(|number| number.is_empty() || is_number(number))
}

/// What there is of a cluster. One manifest that cannot be read does not hide the others.
pub async fn backups(store: &Store, cluster: &str) -> Result<Kept, BackupError> {
    let (manifests, others): (Vec<Entry>, Vec<Entry>) = store
        .list()
        .await?
        .into_iter()
        .filter(|entry| parts(&entry.name, cluster).is_some_and(|(_, _, ending)| is_ours(ending)))
        .partition(|entry| entry.name.ends_with(".json"));
    let reading = stream::iter(manifests).map(|Entry { name, .. }| async move {
        let read = read_manifest(store, &name).await;
        (name, read)
    });
    let mut kept = Kept::default();
    for (name, read) in reading.buffer_unordered(AT_ONCE).collect::<Vec<_>>().await {
        let named = parts(&name, cluster).map(|(revision, taken, _)| (revision, taken));
        match (read, named) {
            (Ok(manifest), _) => kept.backups.push(manifest),
            // Somebody has removed it since.
            (Err(BackupError::Missing { .. }), _) | (_, None) => {}
            (Err(error), Some((revision, taken))) => {
                kept.damaged.push(Damaged { name, revision, taken, why: error.to_string() });
            }
        }
    }
    kept.backups.sort_by_key(|manifest| std::cmp::Reverse((manifest.taken, manifest.revision)));
    kept.damaged.sort_by_key(|damaged| std::cmp::Reverse((damaged.taken, damaged.revision)));
    kept.leftovers = others.into_iter().filter(|entry| !kept.wants(&entry.name)).collect();
    Ok(kept)
}

impl Kept {
    /// Whether a file belongs to a backup, or may do so.
    fn wants(&self, name: &str) -> bool {
        let is_of = |manifest: &str| name.starts_with(&format!("{}.", manifest.trim_end_matches(".json")));
        self.backups.iter().any(|manifest| manifest.file == name) || self.damaged.iter().any(|it| is_of(&it.name))
    }

    /// Leftovers that nobody can still be writing: those of a day ago.
    pub fn old_leftovers(&self, now: Timestamp) -> impl Iterator<Item = &str> {
        let is_old = move |entry: &&Entry| {
            entry.modified.is_some_and(|time| now.duration_since(time) > SignedDuration::from_hours(LEFT_AFTER_HOURS))
        };
        self.leftovers.iter().filter(is_old).map(|entry| entry.name.as_str())
    }
}

/// The newest of them that was there at a time.
pub fn newest(backups: &[Manifest], at: Option<Timestamp>) -> Option<&Manifest> {
    backups.iter().find(|manifest| at.is_none_or(|at| manifest.taken <= at))
}

/// A manifest of that day of 1970, for tests.
#[cfg(test)]
pub(super) fn example(cluster: &str, revision: i64, day: i64, file: &str) -> Manifest {
    Manifest {
        format: FORMAT,
        cluster: cluster.into(),
        cluster_id: "1".into(),
        revision,
        taken: Timestamp::from_second(day * 86_400).unwrap_or_default(),
        member: "etcd-1".into(),
        etcd_version: "3.5.34".into(),
        size: 0,
        sha256: String::new(),
        hash: None,
        file: file.into(),
        stored_size: 0,
        stored_sha256: String::new(),
        recipients: Vec::new(),
        etcdrun: String::new(),
        mac: None,
    }
}

#[cfg(test)]
mod tests {
    use super::{example as manifest, *};

    #[test]
    fn hashes_of_other_compactions_tell_nothing() {
        let hash = |hash, compact_revision| Hash { hash, revision: 9, compact_revision };
        assert_eq!(hash(1, 5).equals(&hash(1, 5)), Ok(true));
        assert!(hash(1, 5).equals(&hash(2, 5)).unwrap_err().contains("at revision 9 its hash is 2, and it was 1"));
        assert_eq!(hash(1, 5).equals(&hash(2, 6)), Ok(false));
        assert_eq!(hash(1, -1).equals(&hash(1, 0)), Ok(true), "neither was ever compacted");
    }

    async fn read(folder: &std::path::Path, cluster: &str) -> Kept {
        backups(&Store::Folder(folder.to_owned()), cluster).await.unwrap()
    }

    #[tokio::test]
    async fn one_bad_manifest_does_not_hide_the_others() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| std::fs::write(folder.path().join(name), bytes).unwrap();
        let good = manifest("prod", 7, 100, "prod-r7-19700411T000000Z.db.zst");
        write(&good.name(), &good.text());
        write(&good.file, b"data");
        write("prod-r9-19700412T000000Z.json", b"{ this is cut sh");
        write("prod-r9-19700412T000000Z.db.zst", b"data");
        // Of another cluster, whose name begins alike.
        let other = manifest("prod-r9", 5, 100, "x");
        write(&other.name(), &other.text());
        let kept = read(folder.path(), "prod").await;
        assert_eq!(kept.backups, std::slice::from_ref(&good));
        assert_eq!(kept.damaged.len(), 1, "{kept:?}");
        let damaged = &kept.damaged[0];
        assert_eq!((damaged.name.as_str(), damaged.revision), ("prod-r9-19700412T000000Z.json", 9));
        assert!(damaged.why.contains("is not a manifest of a backup"), "{}", damaged.why);
        assert_eq!(kept.damaged_since(&good, None).count(), 1);
        assert_eq!(kept.damaged_since(&good, Some(good.taken)).count(), 0);
        assert!(kept.leftovers.is_empty(), "what belongs to it stays: {kept:?}");
    }

    #[tokio::test]
    async fn only_what_no_manifest_names_is_left_over_and_only_after_a_day() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str| std::fs::write(folder.path().join(name), b"data").unwrap();
        let good = manifest("prod", 7, 100, "prod-r7-19700411T000000Z.2.db.zst.age");
        std::fs::write(folder.path().join(good.name()), good.text()).unwrap();
        write(&good.file);
        let left = [
            "prod-r7-19700411T000000Z.3.db.zst.age.part",
            "prod-r7-19700411T000000Z.db.zst",
            "prod-r8-19700412T000000Z.db.zst",
            "prod-r9-19700412T000000Z.db.zst.age.part",
            "prod-r9-19700412T000000Z.json.part",
        ];
        left.iter().for_each(|name| write(name));
        let strange = [
            "notes.txt",
            "prod-r8-19700412T000000Z.db",
            "prod-r8-yesterday.db.zst",
            "production-r8-19700412T000000Z.db.zst",
        ];
        strange.iter().for_each(|name| write(name));
        let kept = read(folder.path(), "prod").await;
        let now = Timestamp::now();
        assert_eq!(kept.old_leftovers(now).count(), 0, "somebody may still be writing them");
        let mut old: Vec<&str> = kept.old_leftovers(now + SignedDuration::from_hours(25)).collect();
        old.sort_unstable();
        assert_eq!(old, left);
    }
}
