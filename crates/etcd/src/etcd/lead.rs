//! The lead, handed over before a member stops: an election would cost clients half a second, this costs them nothing.

use std::{cmp::Reverse, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use super::{
    EtcdError, MemberClient,
    observe::{Observation, see},
};

const PAUSE: Duration = Duration::from_millis(10);

/// Who is to lead next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Successor {
    pub name: String,
    pub id: u64,
}

/// Whether the member leads, and who would take over, best first: voters that are well, those with the newest version
/// before others, then those with the most entries.
pub fn successors(observation: &Observation, name: &str) -> Option<Vec<Successor>> {
    let (leader, _) = observation.leader()?;
    if leader != name {
        return None;
    }
    let votes = |id: u64| observation.voters().any(|voter| voter.id == id);
    let mut others: Vec<_> = observation
        .members
        .iter()
        .filter(|seen| seen.name != name && seen.is_well())
        .filter_map(|seen| Some((seen.name.clone(), seen.answer.as_ref().ok()?)))
        .filter(|(_, view)| votes(view.id) && !view.is_learner)
        .collect();
    others.sort_by_key(|(_, view)| Reverse((view.version, view.applied_index)));
    Some(others.into_iter().map(|(name, view)| Successor { name, id: view.id }).collect())
}

/// Hands the lead over, if the member still has it. The first of the others that has all its entries gets it.
/// Nothing if it does not lead any more.
pub async fn hand_over(
    own: &MemberClient,
    others: &[(Successor, MemberClient)],
    limit: Duration,
) -> Result<Option<Successor>, EtcdError> {
    let start = Instant::now();
    let mut refused = None;
    loop {
        // Read right before, since the lead may have moved by itself.
        let mut client = own.client().await?;
        let status = own.bounded(client.status()).await?;
        let own_id = status.header().map_or(0, |header| header.member_id());
        if status.leader() != own_id {
            return Ok(None);
        }
        let mark = status.raft_index();
        for (successor, other) in others {
            if !reaches(other, mark, limit.saturating_sub(start.elapsed()).min(Duration::from_secs(2))).await {
                continue;
            }
            match own.bounded(client.move_leader(successor.id)).await {
                Ok(_) => {
                    await_lead(own, own_id, limit).await?;
                    await_others(others, own_id, limit).await;
                    return Ok(Some(successor.clone()));
                }
                Err(error) => refused = Some(error),
            }
        }
        if start.elapsed() >= limit {
            let member = own.name.to_string();
            let reason = "it is the leader, and no other member is healthy and has caught up".to_owned();
            return Err(refused.unwrap_or(EtcdError::Refused { member, reason }));
        }
        sleep(PAUSE).await;
    }
}

/// Whether a member has applied so much, soon.
async fn reaches(member: &MemberClient, mark: u64, limit: Duration) -> bool {
    let start = Instant::now();
    loop {
        let seen = see(member, limit.max(PAUSE)).await;
        if seen.is_well() && seen.answer.as_ref().is_ok_and(|view| view.has_reached(mark)) {
            return true;
        }
        if start.elapsed() >= limit {
            return false;
        }
        sleep(PAUSE).await;
    }
}

/// Until the member itself says that another leads.
async fn await_lead(own: &MemberClient, own_id: u64, limit: Duration) -> Result<(), EtcdError> {
    let start = Instant::now();
    loop {
        let mut client = own.client().await?;
        let leader = own.bounded(client.status()).await?.leader();
        if leader != 0 && leader != own_id {
            return Ok(());
        }
        if start.elapsed() >= limit {
            return Err(EtcdError::TimedOut { member: own.name.to_string(), limit });
        }
        sleep(PAUSE).await;
    }
}

/// Until the others follow the new leader, and it has agreed with them on something: only then does it serve. Clients that
/// lost a write meanwhile turn to another member, so none should go down before.
async fn await_others(others: &[(Successor, MemberClient)], old: u64, limit: Duration) {
    let follows = |other: MemberClient| async move {
        let start = Instant::now();
        while start.elapsed() < limit {
            let seen = see(&other, limit).await;
            let leader = seen.answer.as_ref().ok().and_then(|view| view.leader);
            // One that is sick by now is what gates are for.
            if seen.answer.is_err() || (seen.is_well() && leader.is_some_and(|leader| leader != old)) {
                return;
            }
            sleep(PAUSE).await;
        }
    };
    join_all(others.iter().map(|(_, other)| follows(other.clone()))).await;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::etcd::observe::{Listed, Seen, View};

    fn cluster(versions: &[&str]) -> Observation {
        let ids = || (1u64..).zip(versions);
        let listed = |id: u64| Listed { id, name: format!("etcd-{id}"), peer_urls: Vec::new(), is_learner: false };
        let list: Vec<Listed> = ids().map(|(id, _)| listed(id)).collect();
        let view = |id: u64, version: &str| View {
            id,
            cluster_id: 1,
            version: version.parse().unwrap(),
            cluster_version: None,
            storage_version: None,
            downgrade: None,
            leader: Some(1),
            term: 2,
            counted: None,
            raft_index: 100,
            applied_index: 100 + id,
            revision: 1,
            db_size: 1,
            db_in_use: 1,
            quota: None,
            is_learner: false,
            alarms: Vec::new(),
            complaints: Vec::new(),
            list: Ok(list.clone()),
            read: Ok(()),
            lacks_majority: false,
        };
        let seen = |(id, version): (u64, &&str)| Seen { name: format!("etcd-{id}"), answer: Ok(view(id, version)) };
        Observation { members: ids().map(seen).collect(), auth: None }
    }

    fn names(observation: &Observation, name: &str) -> Option<Vec<String>> {
        successors(observation, name).map(|others| others.into_iter().map(|other| other.name).collect())
    }

    #[test]
    fn the_newest_version_leads_next_then_who_has_the_most() {
        let mut now = cluster(&["3.5.34", "3.6.15", "3.5.34", "3.5.34", "3.6.15"]);
        assert_eq!(names(&now, "etcd-2"), None, "it does not lead");
        assert_eq!(names(&now, "etcd-1").unwrap(), ["etcd-5", "etcd-2", "etcd-4", "etcd-3"]);
        now.members[4].answer.as_mut().unwrap().read = Err("too slow".into());
        now.members[1].answer.as_mut().unwrap().is_learner = true;
        now.members[3].answer = Err("no route".into());
        assert_eq!(names(&now, "etcd-1").unwrap(), ["etcd-3"], "neither who is sick nor who is learning");
    }
}
