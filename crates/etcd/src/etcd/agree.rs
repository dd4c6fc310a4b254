//! Whether the members have the same data, as etcd itself calculates it of their keys and values (HashKV).
//!
//! All are asked for the same revision. Every version since 3.4 calculates it alike, so that servers of different versions can compare
//! themselves; but only what was compacted as far can be compared. To calculate it a member reads all that it has, and takes in nothing
//! meanwhile: so one is asked after the other, and the leader last.

use std::time::Duration;

use tokio::time::sleep;

use super::{
    EtcdError, MemberClient,
    observe::{Observation, observe},
};

/// It reads all of the database.
const HASHING: Duration = Duration::from_secs(600);
const LOOK: Duration = Duration::from_secs(10);
/// How often all are asked, while the cluster is being compacted.
const TRIES: usize = 3;
const PAUSE: Duration = Duration::from_millis(500);
/// How long a member may take to get as far as another was.
const BEHIND: usize = 20;

/// What a member calculates of what it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeysHash {
    pub hash: u32,
    pub compact_revision: i64,
}

/// What all of them calculate of the same revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Agreement {
    pub revision: i64,
    /// By name; or why it told nothing.
    pub members: Vec<(String, Result<KeysHash, String>)>,
}

/// Asks one member for one revision.
pub async fn keys_hash(client: &MemberClient, revision: i64) -> Result<KeysHash, EtcdError> {
    let client = client.patient(HASHING);
    let mut asking = client.client().await?;
    for _ in 0..BEHIND {
        match client.bounded(asking.hash_kv(revision)).await {
            Err(EtcdError::Refused { reason, .. }) if reason.contains("future revision") => sleep(PAUSE).await,
            answer => {
                return answer.map(|answer| KeysHash {
                    hash: answer.hash(),
                    // One that never was compacted says 0 or -1.
                    compact_revision: answer.compact_version().max(0),
                });
            }
        }
    }
    let reason = format!("it has not reached revision {revision}");
    Err(EtcdError::Unavailable { member: client.name.to_string(), reason })
}

/// Asks all members that answer; learners cannot tell.
pub async fn agreement(clients: &[MemberClient], now: &Observation) -> Agreement {
    let mut found = ask_all(clients, now).await;
    for _ in 1..TRIES {
        if !found.was_compacted_meanwhile() {
            break;
        }
        sleep(PAUSE).await;
        found = ask_all(clients, &observe(clients, LOOK).await).await;
    }
    found
}

async fn ask_all(clients: &[MemberClient], now: &Observation) -> Agreement {
    let revision = now.views().filter(|(_, view)| !view.is_learner).map(|(_, view)| view.revision).min();
    let revision = revision.unwrap_or_default();
    let mut members = Vec::new();
    for client in in_order(clients, now) {
        let hash = keys_hash(client, revision).await.map_err(|error| error.to_string());
        members.push((client.name.to_string(), hash));
    }
    Agreement { revision, members }
}

/// Voters that answer, the leader last.
pub fn in_order<'a>(clients: &'a [MemberClient], now: &Observation) -> Vec<&'a MemberClient> {
    let leader = now.leader().map(|(name, _)| name.to_owned());
    let answers = |client: &&MemberClient| now.view(&client.name).is_some_and(|view| !view.is_learner);
    let mut order: Vec<&MemberClient> = clients.iter().filter(answers).collect();
    order.sort_by_key(|client| leader.as_deref() == Some(&*client.name));
    order
}

impl Agreement {
    fn hashes(&self) -> impl Iterator<Item = (&str, KeysHash)> {
        self.members.iter().filter_map(|(name, hash)| Some((name.as_str(), *hash.as_ref().ok()?)))
    }

    fn was_compacted_meanwhile(&self) -> bool {
        let compacted = |why: &String| why.contains("has been compacted");
        let mut revisions = self.hashes().map(|(_, hash)| hash.compact_revision);
        let first = revisions.next();
        self.members.iter().any(|(_, hash)| hash.as_ref().is_err_and(compacted))
            || revisions.any(|other| Some(other) != first)
    }

    /// Those that have the same, together; the most first. Only what was compacted as far as most are is in it.
    pub fn groups(&self) -> Vec<(KeysHash, Vec<&str>)> {
        let mut groups: Vec<(KeysHash, Vec<&str>)> = Vec::new();
        let as_far = |revision: i64| self.hashes().filter(|(_, hash)| hash.compact_revision == revision).count();
        let compacted = self.hashes().map(|(_, hash)| hash.compact_revision);
        let compacted = compacted.max_by_key(|revision| (as_far(*revision), *revision));
        for (name, hash) in self.hashes().filter(|(_, hash)| Some(hash.compact_revision) == compacted) {
            match groups.iter_mut().find(|(known, _)| *known == hash) {
                Some((_, names)) => names.push(name),
                None => groups.push((hash, vec![name])),
            }
        }
        groups.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
        groups
    }

    /// Those whose data differs from that of most others, if most others have the same.
    pub fn dissenters(&self) -> Option<Vec<&str>> {
        let groups = self.groups();
        let all: usize = groups.iter().map(|(_, names)| names.len()).sum();
        let (most, others) = groups.split_first()?;
        (most.1.len() * 2 > all).then(|| others.iter().flat_map(|(_, names)| names.iter().copied()).collect())
    }

    /// Who has what, for a person.
    pub fn told(&self) -> String {
        let group = |(hash, names): &(KeysHash, Vec<&str>)| format!("{} ({:08x})", names.join(" and "), hash.hash);
        let groups: Vec<String> = self.groups().iter().map(group).collect();
        format!("at revision {} the hash of their data differs: {}", self.revision, groups.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A member, and its hash with the revision up to which it was compacted, or why there is none.
    type Told<'a> = (&'a str, Result<(u32, i64), &'a str>);

    fn agreement(hashes: &[Told<'_>]) -> Agreement {
        let one = |(name, hash): &(&str, Result<(u32, i64), &str>)| {
            let hash = hash.map(|(hash, compact_revision)| KeysHash { hash, compact_revision });
            ((*name).to_owned(), hash.map_err(str::to_owned))
        };
        Agreement { revision: 9, members: hashes.iter().map(one).collect() }
    }

    #[test]
    fn who_differs_is_told_from_most_of_them() {
        let same = agreement(&[("a", Ok((1, 0))), ("b", Ok((1, 0))), ("c", Ok((1, 0)))]);
        assert_eq!((same.groups().len(), same.dissenters()), (1, Some(vec![])));
        let one = agreement(&[("a", Ok((1, 0))), ("b", Ok((2, 0))), ("c", Ok((1, 0)))]);
        assert_eq!(one.dissenters(), Some(vec!["b"]));
        assert_eq!(one.told(), "at revision 9 the hash of their data differs: a and c (00000001), b (00000002)");
        let two = agreement(&[("a", Ok((1, 0))), ("b", Ok((2, 0)))]);
        assert_eq!((two.groups().len(), two.dissenters()), (2, None));
    }

    #[test]
    fn what_was_compacted_further_cannot_be_compared() {
        let late = agreement(&[("a", Ok((1, 5))), ("b", Ok((2, 7))), ("c", Ok((2, 7)))]);
        assert!(late.was_compacted_meanwhile());
        assert_eq!(late.groups().len(), 1);
        let gone = agreement(&[("a", Err("required revision has been compacted")), ("b", Ok((2, 7)))]);
        assert!(gone.was_compacted_meanwhile());
        assert!(!agreement(&[("a", Err("no route")), ("b", Ok((2, 7)))]).was_compacted_meanwhile());
    }
}
