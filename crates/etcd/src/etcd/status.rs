//! What a cluster's members say of it. Read-only: alarms come from Status, since asking for them is a proposal.

use futures_util::future::join_all;
use serde::Serialize;

use super::{EtcdError, MemberClient};

/// What one member says.
#[derive(Clone, Debug, Serialize)]
pub struct MemberStatus {
    pub name: String,
    /// In hexadecimal, as etcdctl prints it.
    pub id: String,
    pub cluster_id: String,
    pub version: String,
    /// What all members are known to understand; the next minor version may come only once it has caught up.
    pub cluster_version: String,
    /// From 3.6 on.
    pub storage_version: String,
    /// The id of the member it takes for the leader; nothing if there is none.
    pub leader: Option<String>,
    pub term: u64,
    pub raft_index: u64,
    pub applied_index: u64,
    pub db_size: i64,
    pub is_learner: bool,
    /// Alarms and other complaints.
    pub errors: Vec<String>,
    /// It answered a read that a majority has agreed to.
    pub is_healthy: bool,
    /// The members it knows of, by name; an empty name is one that has not started.
    pub members: Vec<String>,
}

/// What all of them say.
#[derive(Debug, Default)]
pub struct ClusterStatus {
    pub members: Vec<Result<MemberStatus, EtcdError>>,
}

/// Asks every member at once.
pub async fn look(members: &[MemberClient]) -> ClusterStatus {
    ClusterStatus { members: join_all(members.iter().map(ask)).await }
}

async fn ask(member: &MemberClient) -> Result<MemberStatus, EtcdError> {
    let mut client = member.client().await?;
    let status = member.bounded(client.status()).await?;
    let list = member.bounded(client.member_list()).await?;
    let header = status.header();
    let version: serde_json::Value = serde_json::from_str(&member.get("/version").await?).unwrap_or_default();
    // Permission to read is not the point; an answer that was agreed to is.
    let read = member.bounded(client.get("health", None)).await;
    let is_healthy = match read {
        Ok(_) => true,
        Err(EtcdError::Refused { .. }) => true,
        Err(_) => false,
    };
    Ok(MemberStatus {
        name: member.name.to_string(),
        id: id(header.map_or(0, |header| header.member_id())),
        cluster_id: id(header.map_or(0, |header| header.cluster_id())),
        version: status.version().to_owned(),
        cluster_version: version["etcdcluster"].as_str().unwrap_or_default().to_owned(),
        storage_version: status.storage_version().to_owned(),
        leader: Some(status.leader()).filter(|leader| *leader != 0).map(id),
        term: status.raft_term(),
        raft_index: status.raft_index(),
        applied_index: status.raft_applied_index(),
        db_size: status.db_size(),
        is_learner: status.is_learner(),
        errors: status.errors().to_vec(),
        is_healthy,
        members: list.members().iter().map(|member| member.name().to_owned()).collect(),
    })
}

fn id(id: u64) -> String {
    format!("{id:x}")
}

impl ClusterStatus {
    /// Why the cluster is not as it should be, if it is not: every member answers, all of them agree.
    pub fn problem(&self, names: &[&str]) -> Option<String> {
        for member in &self.members {
            match member {
                Err(error) => return Some(error.to_string()),
                Ok(member) => {
                    if let Some(problem) = member.problem(names) {
                        return Some(problem);
                    }
                }
            }
        }
        let answers: Vec<&MemberStatus> = self.members.iter().flatten().collect();
        let first = answers.first()?;
        if answers.iter().any(|member| member.cluster_id != first.cluster_id) {
            return Some("the members belong to different clusters".to_owned());
        }
        if answers.iter().any(|member| member.leader != first.leader) {
            return Some("the members follow different leaders".to_owned());
        }
        None
    }

    pub fn cluster_id(&self) -> Option<&str> {
        self.members.iter().flatten().map(|member| member.cluster_id.as_str()).next()
    }

    /// The name of the leader.
    pub fn leader(&self) -> Option<&str> {
        let answers = || self.members.iter().flatten();
        let leader = answers().find_map(|member| member.leader.as_deref())?;
        answers().find(|member| member.id == leader).map(|member| member.name.as_str())
    }
}

impl MemberStatus {
    fn problem(&self, names: &[&str]) -> Option<String> {
        let name = &self.name;
        if self.leader.is_none() {
            return Some(format!("{name} has no leader"));
        }
        if !self.is_healthy {
            return Some(format!("{name} does not answer reads"));
        }
        if let Some(error) = self.errors.first() {
            return Some(format!("{name} reports an error: {error}"));
        }
        let mut known: Vec<&str> = self.members.iter().map(String::as_str).collect();
        let mut wanted = names.to_vec();
        known.sort_unstable();
        wanted.sort_unstable();
        if known != wanted {
            let known = known.iter().map(|name| if name.is_empty() { "(not started)" } else { name });
            let known: Vec<&str> = known.collect();
            return Some(format!("{name} lists the members {}, expected {}", known.join(", "), wanted.join(", ")));
        }
        None
    }
}
