//! Whether the members hold the same data.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::{
    check::{Violation, ViolationKind},
    cluster::{Cluster, Endpoint},
    connect::{WithoutLeader, bounded, connect},
    failure::Failure,
};

/// A member hashes all that it holds before it answers.
const LIMIT: Duration = Duration::from_secs(10);
const AGAIN: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hash {
    pub hash: u32,
    /// Hashes are only comparable if this is equal.
    pub compact_revision: i64,
    /// The member's own revision when it answered.
    pub revision: i64,
    /// The cluster that it says it belongs to.
    pub cluster_id: u64,
}

/// What a member answered, or why it did not.
#[derive(Clone, Debug)]
pub struct MemberHash {
    pub endpoint: String,
    pub hash: Result<Hash, String>,
}

/// Asks every member for the hash of its data up to a revision, or up to its own.
pub fn hash_kv(cluster: &Cluster, revision: Option<i64>) -> Result<Vec<MemberHash>> {
    let cluster = cluster.clone();
    // On a thread of its own, so that it does not matter what thread asks.
    let thread = std::thread::spawn(move || -> Result<Vec<MemberHash>> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        Ok(runtime.block_on(async {
            let mut hashes = Vec::new();
            for endpoint in &cluster.endpoints {
                let hash = hash(&cluster, endpoint, revision.unwrap_or(0)).await;
                let hash = hash.map_err(|failure| failure.reason);
                hashes.push(MemberHash { endpoint: endpoint.name.clone(), hash });
            }
            hashes
        }))
    });
    thread.join().ok().context("the thread that asks for hashes broke down")?
}

async fn hash(cluster: &Cluster, endpoint: &Endpoint, revision: i64) -> Result<Hash, Failure> {
    let mut client = connect(cluster, endpoint, LIMIT, WithoutLeader::Answer).await?;
    let response = bounded(LIMIT, client.hash_kv(revision)).await?;
    let (revision, cluster_id) = response.header().map_or((0, 0), |header| (header.revision(), header.cluster_id()));
    Ok(Hash { hash: response.hash(), compact_revision: response.compact_version(), revision, cluster_id })
}

/// Whether all members have the same data at one revision. It tries again as long as members do not answer, are behind, or compact.
pub fn hashes_agree(cluster: &Cluster, patience: Duration) -> Result<(), Box<Violation>> {
    let start = Instant::now();
    loop {
        let obstacle = match compare(cluster) {
            Comparison::Equal => return Ok(()),
            Comparison::Different(sentence) => return Err(violation(ViolationKind::HashesDiffer, sentence)),
            Comparison::Impossible(obstacle) => obstacle,
        };
        if start.elapsed() > patience {
            let sentence = format!("The hashes of the members could not be compared: {obstacle}.");
            return Err(violation(ViolationKind::HashesNotCompared, sentence));
        }
        std::thread::sleep(AGAIN);
    }
}

#[derive(Debug, PartialEq)]
enum Comparison {
    Equal,
    Different(String),
    /// And why.
    Impossible(String),
}

fn compare(cluster: &Cluster) -> Comparison {
    let all = |revision| -> Result<BTreeMap<String, Hash>, String> {
        let hashes = hash_kv(cluster, revision).map_err(|error| error.to_string())?;
        let hash = |one: MemberHash| match one.hash {
            Ok(hash) => Ok((one.endpoint, hash)),
            Err(reason) => Err(format!("{} does not answer: {reason}", one.endpoint)),
        };
        hashes.into_iter().map(hash).collect()
    };
    let compared = all(None).and_then(|hashes| {
        let smallest = hashes.values().map(|hash| hash.revision).min();
        let smallest = smallest.ok_or_else(|| "the cluster has no endpoints".to_owned())?;
        Ok(judge(smallest, &all(Some(smallest))?))
    });
    compared.unwrap_or_else(Comparison::Impossible)
}

fn judge(revision: i64, hashes: &BTreeMap<String, Hash>) -> Comparison {
    let list = |what: &dyn Fn(&Hash) -> i64| {
        let each = hashes.iter().map(|(name, hash)| format!("{name} has {}", what(hash)));
        each.collect::<Vec<_>>().join(", ")
    };
    let mut values = hashes.values();
    let Some(first) = values.next() else { return Comparison::Impossible("no member answered".to_owned()) };
    if values.clone().any(|hash| hash.compact_revision != first.compact_revision) {
        let compacted = list(&|hash| hash.compact_revision);
        return Comparison::Impossible(format!("the compacted revisions differ: {compacted}"));
    }
    if values.any(|hash| hash.hash != first.hash) {
        let hashes = list(&|hash| hash.hash.into());
        return Comparison::Different(format!("The members hold different data at revision {revision}: {hashes}."));
    }
    Comparison::Equal
}

fn violation(kind: ViolationKind, sentence: String) -> Box<Violation> {
    Box::new(Violation::new(kind, sentence))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(all: [(u32, i64); 2]) -> BTreeMap<String, Hash> {
        let hash = |(hash, compact_revision)| Hash { hash, compact_revision, revision: 9, cluster_id: 1 };
        ["one", "two"].map(str::to_owned).into_iter().zip(all.map(hash)).collect()
    }

    #[test]
    fn hashes_are_compared_where_the_compacted_revision_is_the_same() {
        assert_eq!(judge(9, &hashes([(1, 5), (1, 5)])), Comparison::Equal);
        assert!(matches!(judge(9, &hashes([(1, 5), (2, 5)])), Comparison::Different(_)));
        assert!(matches!(judge(9, &hashes([(1, 5), (2, 6)])), Comparison::Impossible(_)));
        assert!(matches!(judge(9, &BTreeMap::new()), Comparison::Impossible(_)));
    }
}
