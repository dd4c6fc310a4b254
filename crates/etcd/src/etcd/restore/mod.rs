//! Restore: makes of a snapshot the data folders of a new cluster, as `etcdutl snapshot restore` does.
//!
//! In: the database of a snapshot as a file, and the members that are to be. Out: the same file, changed so that it belongs to
//! them, and for each member the few bytes of its log and of its raft snapshot. etcd's own tool is not in every release that can
//! be installed, and would have to be on every member; this needs neither. The tests compare it with that tool, record by record, and
//! with servers of every minor version. What differs on purpose: alarms and a downgrade of the old cluster do not come along, root
//! gets the password that is kept here, and the raft snapshot knows the members' names from the beginning.
//!
//!     data/member/snap/db                    the database; the same for all members
//!     data/member/snap/TERM-INDEX.snap       who the members are, for raft
//!     data/member/wal/0-0.wal                the log: begins with the members, one entry each

mod bolt;
mod log;
mod store;
#[cfg(test)]
mod tests;
mod user;
pub mod v2;

use std::{fs::File, path::Path};

use serde::Serialize;

use bolt::Bolt;
pub use bolt::Walk;
#[cfg(test)]
pub use bolt::testing;
pub use log::{Tail, TailReader};
pub use user::password_hash;

use crate::digest::sha1;
use etcdrun_base::mutant::{is_off, repair};

/// Why a file is no database that could be restored.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    #[error("cannot work on the database: {0}")]
    Io(#[from] std::io::Error),
    #[error("this is no database of etcd: {0}")]
    Foreign(String),
}

/// A member of the cluster that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewMember {
    pub id: u64,
    pub name: String,
    pub peer_url: String,
}

/// The cluster that is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewCluster {
    pub id: u64,
    /// By id, as etcd has them.
    pub members: Vec<NewMember>,
}

/// What only one member has, by its path below the data folder.
pub struct Files {
    pub log: (String, Vec<u8>),
    pub snapshot: (String, Vec<u8>),
}

/// Where the database belongs, below the data folder.
pub const DATABASE: &str = "member/snap/db";
const TERM: u64 = 1;

/// As etcd writes a member, in the log and in the database.
#[derive(Serialize)]
struct Written<'m> {
    id: u64,
    #[serde(rename = "peerURLs")]
    peer_urls: [&'m str; 1],
    name: &'m str,
}

impl NewCluster {
    /// Ids follow from addresses and token: a new token makes a new cluster, which no member of the old one can join.
    pub fn new(members: impl IntoIterator<Item = (String, String)>, token: &str) -> Self {
        let member = |(name, peer_url): (String, String)| {
            let id = first_eight(&[peer_url.as_bytes(), token.as_bytes()].concat());
            NewMember { id, name, peer_url }
        };
        let mut members: Vec<NewMember> = members.into_iter().map(member).collect();
        members.sort_by_key(|member| member.id);
        let ids: Vec<u8> = members.iter().flat_map(|member| member.id.to_be_bytes()).collect();
        Self { id: first_eight(&ids), members }
    }

    fn last_index(&self) -> u64 {
        self.members.len() as u64
    }

    fn ids(&self) -> Vec<u64> {
        self.members.iter().map(|member| member.id).collect()
    }

    /// What a member has beside the database.
    pub fn files(&self, name: &str) -> Option<Files> {
        let member = self.members.iter().find(|member| member.name == name)?;
        let snapshot = format!("member/snap/{TERM:016x}-{:016x}.snap", self.last_index());
        Some(Files {
            log: (format!("member/wal/{:016x}-{:016x}.wal", 0, 0), log::log(self, member)),
            snapshot: (snapshot, log::raft_snapshot(self)),
        })
    }
}

impl NewMember {
    fn written(&self) -> Vec<u8> {
        let written = Written { id: self.id, peer_urls: [&self.peer_url], name: &self.name };
        // Such plain types always have a JSON form.
        serde_json::to_vec(&written).unwrap_or_default()
    }
}

fn first_eight(bytes: &[u8]) -> u64 {
    let mut first = [0; 8];
    first.copy_from_slice(&sha1(bytes)[..8]);
    u64::from_be_bytes(first)
}

/// What became of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Adopted {
    pub revision: i64,
    /// Where the page is that makes a higher revision count. Without it the database has the revisions of the backup, and with them
    /// the hash that etcd calculated then.
    pub bump_at: Option<u64>,
}

/// Makes the database that of a new cluster, in place. With a `bump` its revision goes up by as much, and all up to there
/// counts as compacted: so no client that has seen later revisions before takes old ones for new. `root` is the hash of the password
/// that root gets, where it has one.
pub fn adopt(path: &Path, cluster: &NewCluster, bump: u64, root: Option<&str>) -> Result<Adopted, RestoreError> {
    let open = || Bolt::open(File::options().read(true).write(true).open(path)?);
    let mut bolt = open()?;
    take_over(&mut bolt, cluster)?;
    if let Some(hash) = root.filter(|_| !is_off(repair::ROOT_PASSWORD)) {
        user::let_in(&mut bolt, "root", hash)?;
    }
    let revision = bolt.revision()?;
    bolt.commit()?;
    if bump == 0 {
        return Ok(Adopted { revision, bump_at: None });
    }
    let mut bolt = open()?;
    let revision = revision.saturating_add_unsigned(bump);
    let key = revision_key(revision);
    let mut meta = bolt.small_bucket("meta")?;
    meta.insert(b"scheduledCompactRev".to_vec(), key.clone());
    bolt.append_last("key", key)?;
    bolt.replace("meta", &meta)?;
    let bump_at = Some(bolt.next_meta());
    bolt.commit()?;
    Ok(Adopted { revision, bump_at })
}

/// The members are these, and have seen nothing but how they began.
fn take_over(bolt: &mut Bolt, cluster: &NewCluster) -> Result<(), RestoreError> {
    let mut meta = bolt.small_bucket("meta")?;
    meta.insert(b"consistent_index".to_vec(), cluster.last_index().to_be_bytes().to_vec());
    meta.insert(b"term".to_vec(), TERM.to_be_bytes().to_vec());
    if meta.contains_key(&b"confState"[..]) {
        let state = serde_json::json!({ "voters": cluster.ids(), "auto_leave": false });
        meta.insert(b"confState".to_vec(), state.to_string().into_bytes());
    }
    let members = cluster.members.iter().map(|member| (format!("{:x}", member.id).into_bytes(), member.written()));
    bolt.replace("members", &members.collect())?;
    bolt.replace("members_removed", &bolt::Pairs::new())?;
    bolt.replace("meta", &meta)?;
    // Alarms are those of members that are no more: nobody could disarm them, and nothing could be written.
    if bolt.has_bucket("alarm") && !is_off(repair::OLD_ALARMS) {
        bolt.replace("alarm", &bolt::Pairs::new())?;
    }
    // Nor does the new cluster go down to another version because the old one was about to.
    if bolt.has_bucket("cluster") && !is_off(repair::OLD_DOWNGRADE) {
        let mut known = bolt.small_bucket("cluster")?;
        if known.remove(&b"downgrade"[..]).is_some() {
            bolt.replace("cluster", &known)?;
        }
    }
    Ok(())
}

/// The version of etcd that a database was written by, as far as it says so itself: how its data is laid out, from 3.6 on, or
/// what all members of its cluster understood.
pub fn version(path: &Path) -> Result<Option<String>, RestoreError> {
    let bolt = Bolt::open(File::open(path)?)?;
    let find = |bucket: &str, key: &[u8]| bolt.small_bucket(bucket).ok()?.remove(key);
    let found = find("meta", b"storageVersion").or_else(|| find("cluster", b"clusterVersion"));
    Ok(found.and_then(|version| String::from_utf8(version).ok()).filter(|version| !version.is_empty()))
}

/// As etcd writes a revision: the number, and which change it was in its transaction.
fn revision_key(revision: i64) -> Vec<u8> {
    [&revision.to_be_bytes()[..], b"_", &0_i64.to_be_bytes()].concat()
}
