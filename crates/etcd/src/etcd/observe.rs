//! A look at a whole cluster: every member is asked for itself, all at once, each within a limit.
//!
//! ```text
//! observe(clients, limit) ──> Observation ──> rules::judge, path::hops
//! ```
//!
//! Nothing of it goes through the log of raft: alarms come from Status and not from the alarm API, and whether
//! authentication is on is told by how a login of nobody is refused, which is before anything is proposed.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use futures_util::future::{join_all, join4};
use serde::{Deserialize, Serialize};
use tokio::time::sleep;

use super::{EtcdError, MemberClient};
use crate::model::Version;

/// What major and minor of a version are: what decides about upgrades.
pub type Series = (u16, u16);

/// What the members of a cluster say, at about the same time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Observation {
    /// In the order in which they were asked.
    pub members: Vec<Seen>,
    /// Whether authentication is on. Asked only where it matters: while a member runs 3.4.
    pub auth: Option<bool>,
}

/// One member that was asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seen {
    /// The name in the inventory.
    pub name: String,
    /// What it says, or why it says nothing.
    pub answer: Result<View, String>,
}

/// What a member says of itself and of the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct View {
    #[serde(with = "hexadecimal")]
    pub id: u64,
    #[serde(with = "hexadecimal")]
    pub cluster_id: u64,
    pub version: Version,
    /// What all members are known to understand; nothing while it is undecided.
    pub cluster_version: Option<Series>,
    /// What the data on disk is like; from 3.6 on.
    pub storage_version: Option<Series>,
    /// To where a downgrade is allowed, if one is; from 3.6 on.
    pub downgrade: Option<Series>,
    /// The member it takes for the leader.
    #[serde(with = "hexadecimal::maybe")]
    pub leader: Option<u64>,
    pub term: u64,
    /// The members that its Raft counts, by id; the leader alone tells.
    #[serde(default)]
    pub counted: Option<BTreeSet<String>>,
    /// The last entry that is known to be agreed to.
    pub raft_index: u64,
    /// The last entry that is in its data.
    pub applied_index: u64,
    pub revision: i64,
    pub db_size: u64,
    /// What a defragmentation would leave of it.
    pub db_in_use: u64,
    /// From 3.6 on.
    pub quota: Option<u64>,
    pub is_learner: bool,
    pub alarms: Vec<Alarm>,
    /// What else Status complains of, such as that there is no leader.
    pub complaints: Vec<String>,
    /// The members as it knows them, by id; a learner does not tell.
    pub list: Result<Vec<Listed>, String>,
    /// Whether a linearizable read through it was answered.
    pub read: Result<(), String>,
    /// If it was not: whether because no majority agreed to it in time.
    #[serde(default)]
    pub lacks_majority: bool,
}

/// A member, as another lists it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Listed {
    #[serde(with = "hexadecimal")]
    pub id: u64,
    /// Empty as long as it has not started.
    pub name: String,
    pub peer_urls: Vec<String>,
    pub is_learner: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Alarm {
    #[serde(with = "hexadecimal")]
    pub member: u64,
    pub kind: AlarmKind,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AlarmKind {
    Nospace,
    Corrupt,
    Other(String),
}

/// Asks every member at once; none takes longer than `limit`.
pub async fn observe(members: &[MemberClient], limit: Duration) -> Observation {
    let members_seen = join_all(members.iter().map(|member| see(member, limit))).await;
    let mut observation = Observation { members: members_seen, auth: None };
    if observation.views().any(|(_, view)| view.version.series() == (3, 4)) {
        observation.auth = authentication(members, limit).await;
    }
    observation
}

/// One member, by itself: for waiting until it is back.
pub async fn see(member: &MemberClient, limit: Duration) -> Seen {
    let answer = match tokio::time::timeout(limit, ask(member)).await {
        Ok(answer) => answer.map_err(|error| error.to_string()),
        Err(_) => Err(EtcdError::TimedOut { member: member.name.to_string(), limit }.to_string()),
    };
    Seen { name: member.name.to_string(), answer }
}

async fn ask(member: &MemberClient) -> Result<View, EtcdError> {
    let client = member.client().await?;
    let (mut one, mut two, mut three) = (client.clone(), client.clone(), client);
    let (status, list, version, read) = join4(
        member.bounded(one.status()),
        member.bounded(two.member_list()),
        member.get("/version"),
        member.bounded(three.get("health", None)),
    )
    .await;
    let status = status?;
    let version: serde_json::Value = version.ok().and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_default();
    let (alarms, complaints) = complaints(status.errors());
    let header = status.header();
    let told = status.version();
    let lacks_majority = read.as_ref().is_err_and(EtcdError::lacks_majority);
    let list = list.map_err(|error| error.to_string()).map(|list| listed(list.members()));
    let leads = header.is_some_and(|header| header.member_id() == status.leader());
    let variables = if leads { member.get("/debug/vars").await.ok() } else { None };
    Ok(View {
        id: header.map_or(0, |header| header.member_id()),
        cluster_id: header.map_or(0, |header| header.cluster_id()),
        version: told.parse().map_err(|_| EtcdError::Refused {
            member: member.name.to_string(),
            reason: format!("it runs `{told}`, which is not a released version"),
        })?,
        cluster_version: version["etcdcluster"].as_str().and_then(series),
        storage_version: series(status.storage_version()),
        downgrade: status.downgrade_info().filter(|info| info.enabled()).and_then(|info| series(info.target_version())),
        leader: Some(status.leader()).filter(|leader| *leader != 0),
        term: status.raft_term(),
        counted: variables.as_deref().and_then(counted),
        raft_index: status.raft_index(),
        applied_index: status.raft_applied_index(),
        revision: header.map_or(0, |header| header.revision()),
        db_size: status.db_size().try_into().unwrap_or_default(),
        db_in_use: status.raft_used_db_size().try_into().unwrap_or_default(),
        quota: u64::try_from(status.db_size_quota()).ok().filter(|quota| *quota > 0),
        is_learner: status.is_learner(),
        alarms,
        complaints,
        list,
        read: match read {
            // Leave to read is not the point: a member without a majority does not even get as far as refusing it.
            Ok(_) | Err(EtcdError::Refused { .. }) => Ok(()),
            Err(error) => Err(error.to_string()),
        },
        lacks_majority,
    })
}

/// How far a learner is, by what it tells anybody: with passwords it takes no login, and before 3.5 it answers nothing without one.
/// Whether it is one is not asked: `etcd_server_is_learner` is 0 for a learner that got its data as a snapshot.
pub async fn learner_progress(member: &MemberClient) -> Option<LearnerProgress> {
    LearnerProgress::read(&member.get("/metrics").await.ok()?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LearnerProgress {
    pub id: u64,
    pub applied_index: u64,
}

impl LearnerProgress {
    fn read(metrics: &str) -> Option<Self> {
        let value = |name: &str| metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        let id =
            metrics.lines().find_map(|line| line.strip_prefix("etcd_server_id{server_id=\"")?.split('"').next())?;
        let applied: f64 = value("etcd_server_proposals_applied_total")?.trim().parse().ok()?;
        // A float by its form, a count by its meaning.
        Some(Self { id: u64::from_str_radix(id, 16).ok()?, applied_index: applied as u64 })
    }
}

fn listed(members: &[etcd_client::Member]) -> Vec<Listed> {
    let one = |member: &etcd_client::Member| {
        let mut peer_urls = member.peer_urls().to_vec();
        peer_urls.sort();
        Listed { id: member.id(), name: member.name().to_owned(), peer_urls, is_learner: member.is_learner() }
    };
    let mut members: Vec<Listed> = members.iter().map(one).collect();
    members.sort();
    members
}

/// The ids of those that the leader sends its log to.
fn counted(variables: &str) -> Option<BTreeSet<String>> {
    let variables: serde_json::Value = serde_json::from_str(variables).ok()?;
    let progress = variables["raft.status"]["progress"].as_object()?;
    Some(progress.keys().cloned().collect()).filter(|ids: &BTreeSet<String>| !ids.is_empty())
}

/// `3.6` as well as `3.6.0`; nothing for `not_decided`.
fn series(text: &str) -> Option<Series> {
    let mut numbers = text.split('.').map(str::parse::<u16>);
    Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
}

/// Status tells alarms as texts: `memberID:8211f1d0f64f3269 alarm:NOSPACE`, with more or less space between the two.
fn complaints(errors: &[String]) -> (Vec<Alarm>, Vec<String>) {
    let mut alarms = Vec::new();
    let mut others = Vec::new();
    for error in errors {
        let word = |name: &str| error.split_whitespace().find_map(|word| word.strip_prefix(name));
        match word("alarm:") {
            Some(kind) => alarms.push(Alarm {
                member: word("memberID:").and_then(|id| id.parse().ok()).unwrap_or_default(),
                kind: match kind {
                    "NOSPACE" => AlarmKind::Nospace,
                    "CORRUPT" => AlarmKind::Corrupt,
                    other => AlarmKind::Other(other.to_owned()),
                },
            }),
            None => others.push(error.clone()),
        }
    }
    alarms.sort();
    (alarms, others)
}

/// Whether authentication is on, as any member knows that answers.
async fn authentication(members: &[MemberClient], limit: Duration) -> Option<bool> {
    for member in members {
        if let Ok(Ok(is_on)) = tokio::time::timeout(limit, member.authenticates()).await {
            return Some(is_on);
        }
    }
    None
}

/// Looks again and again until what is seen is settled, or an election must be over: one takes seconds, as after the death of a leader.
pub async fn settled<T, L: Future<Output = T>>(look: impl Fn() -> L, is_settled: impl Fn(&T) -> bool) -> T {
    const ELECTION: Duration = Duration::from_secs(10);
    const PAUSE: Duration = Duration::from_millis(100);
    let start = Instant::now();
    loop {
        let seen = look().await;
        if is_settled(&seen) || start.elapsed() >= ELECTION {
            return seen;
        }
        sleep(PAUSE).await;
    }
}

impl Observation {
    /// Whether more than half of the voters are healthy.
    pub fn has_quorum(&self) -> bool {
        self.members.iter().filter(|seen| seen.is_well()).count() > self.voters().count() / 2
    }

    /// The members that answer, with what they say.
    pub fn views(&self) -> impl Iterator<Item = (&str, &View)> {
        self.members.iter().filter_map(|seen| Some((seen.name.as_str(), seen.answer.as_ref().ok()?)))
    }

    /// Whether etcd has raised CORRUPT for this member. All members tell of all alarms, so it may have stopped since: at its next
    /// start it notices by itself, and exits.
    pub fn is_corrupt(&self, id: u64) -> bool {
        let is_meant = |alarm: &Alarm| alarm.kind == AlarmKind::Corrupt && alarm.member == id;
        self.views().any(|(_, view)| view.alarms.iter().any(is_meant))
    }

    pub fn view(&self, name: &str) -> Option<&View> {
        self.views().find(|(known, _)| *known == name).map(|(_, view)| view)
    }

    /// The members of the cluster, as the best informed one lists them: by the highest term, then the most entries.
    pub fn list(&self) -> &[Listed] {
        let lists =
            self.views().filter_map(|(_, view)| Some((view.term, view.applied_index, view.list.as_ref().ok()?)));
        lists.max_by_key(|(term, index, _)| (*term, *index)).map(|(_, _, list)| list.as_slice()).unwrap_or_default()
    }

    pub fn voters(&self) -> impl Iterator<Item = &Listed> {
        self.list().iter().filter(|member| !member.is_learner)
    }

    /// The leader by name and view: whom the members of the highest term follow, if it answers itself.
    pub fn leader(&self) -> Option<(&str, &View)> {
        let term = self.views().map(|(_, view)| view.term).max()?;
        let leader = self.views().filter(|(_, view)| view.term == term).find_map(|(_, view)| view.leader)?;
        self.views().find(|(_, view)| view.id == leader)
    }

    /// The leader's index, to be reached by others later. Taken once: two looks under load differ by hundreds.
    pub fn mark(&self) -> Option<u64> {
        self.leader().map(|(_, view)| view.raft_index)
    }

    /// What a member is called, by its id: in the inventory, or as it is listed.
    pub fn name(&self, id: u64) -> String {
        let seen = self.views().find(|(_, view)| view.id == id).map(|(name, _)| name.to_owned());
        let listed = || self.list().iter().find(|member| member.id == id && !member.name.is_empty());
        seen.or_else(|| listed().map(|member| member.name.clone())).unwrap_or_else(|| format!("{id:x}"))
    }
}

impl Seen {
    /// Why it is not a member that others can count on: it answers, reads through a majority, and has no complaint.
    pub fn trouble(&self) -> Option<String> {
        let view = match &self.answer {
            Ok(view) => view,
            Err(error) => return Some(error.clone()),
        };
        match (&view.read, view.leader, view.complaints.first()) {
            _ if view.is_corrupt() => Some(format!("etcd has found the data of {} damaged (CORRUPT)", self.name)),
            (Err(error), ..) => Some(error.clone()),
            (_, None, _) => Some(format!("{} has no leader", self.name)),
            (.., Some(complaint)) => Some(format!("{} reports an error: {complaint}", self.name)),
            _ => None,
        }
    }

    pub fn is_well(&self) -> bool {
        self.trouble().is_none()
    }
}

impl View {
    /// Whether etcd has raised CORRUPT for it. All members tell of all alarms; the others can be trusted.
    pub fn is_corrupt(&self) -> bool {
        self.alarms.iter().any(|alarm| alarm.kind == AlarmKind::Corrupt && alarm.member == self.id)
    }

    /// Whether it has all that was agreed to at a mark, in its data.
    pub fn has_reached(&self, mark: u64) -> bool {
        self.applied_index >= mark
    }
}

/// Ids as etcdctl prints them: as numbers they would not survive where numbers are floats.
mod hexadecimal {
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    fn parse<E: Error>(text: &str) -> Result<u64, E> {
        u64::from_str_radix(text, 16).map_err(|_| E::custom(format!("`{text}` is not an id")))
    }

    pub fn serialize<S: Serializer>(id: &u64, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{id:x}"))
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
        parse(&String::deserialize(deserializer)?)
    }

    pub mod maybe {
        use serde::{Deserialize, Deserializer, Serialize, Serializer};

        pub fn serialize<S: Serializer>(id: &Option<u64>, serializer: S) -> Result<S::Ok, S::Error> {
            id.map(|id| format!("{id:x}")).serialize(serializer)
        }

        pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
            Option::<String>::deserialize(deserializer)?.map(|text| super::parse(&text)).transpose()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leader_tells_whom_its_raft_counts() {
        let told = |progress: &str| counted(&format!(r#"{{"cmdline":[],"raft.status":{{"id":"a1",{progress}}}}}"#));
        let two = told(r#""progress":{"a1":{"match":9,"next":10,"state":"StateProbe"},"b2":{"match":9}}"#);
        assert_eq!(two, Some(["a1", "b2"].map(str::to_owned).into()));
        assert_eq!(told(r#""progress":{}"#), None, "a follower");
        assert_eq!(counted("<html>"), None);
    }

    #[test]
    fn alarms_are_read_out_of_what_status_complains_of() {
        let errors = [
            "memberID:10501334649042878790 alarm:NOSPACE ",
            "memberID:7  alarm:CORRUPT",
            "alarm:SOON",
            "etcdserver: no leader",
        ];
        let (alarms, others) = complaints(&errors.map(str::to_owned));
        let alarm = |member, kind| Alarm { member, kind };
        assert_eq!(
            alarms,
            [
                alarm(0, AlarmKind::Other("SOON".into())),
                alarm(7, AlarmKind::Corrupt),
                alarm(10_501_334_649_042_878_790, AlarmKind::Nospace),
            ]
        );
        assert_eq!(others, ["etcdserver: no leader"]);
    }

    #[test]
    fn what_was_seen_survives_being_registered() {
        let list = vec![Listed {
            id: u64::MAX,
            name: "a".into(),
            peer_urls: vec!["https://a:2380".into()],
            is_learner: false,
        }];
        let view = View {
            id: u64::MAX,
            cluster_id: 1 << 63,
            version: "3.6.15".parse().unwrap(),
            cluster_version: Some((3, 6)),
            storage_version: None,
            downgrade: None,
            leader: Some(7),
            term: 1,
            counted: None,
            raft_index: 2,
            applied_index: 2,
            revision: 3,
            db_size: 4,
            db_in_use: 4,
            quota: None,
            is_learner: false,
            alarms: vec![Alarm { member: 9, kind: AlarmKind::Nospace }],
            complaints: Vec::new(),
            list: Ok(list),
            read: Err("too slow".into()),
            lacks_majority: true,
        };
        let silent = Seen { name: "b".into(), answer: Err("no route".into()) };
        let seen = Observation { members: vec![Seen { name: "a".into(), answer: Ok(view) }, silent], auth: Some(true) };
        let value = serde_json::to_value(&seen).unwrap();
        assert_eq!(value["members"][0]["answer"]["Ok"]["id"], "ffffffffffffffff");
        assert_eq!(serde_json::from_value::<Observation>(value).unwrap(), seen);
    }

    #[test]
    fn a_learner_tells_by_its_metrics_how_far_it_is() {
        let metrics = "# HELP etcd_server_id Server or member ID in hexadecimal format. 1 for 'server_id' label with current ID.\netcd_server_id{server_id=\"8e9e05c52164694d\"} 1\netcd_server_is_learner 1\netcd_server_proposals_applied_total 1.2e+06\n";
        let progress = LearnerProgress { id: 0x8e9e_05c5_2164_694d, applied_index: 1_200_000 };
        assert_eq!(LearnerProgress::read(metrics), Some(progress));
        let by_snapshot = metrics.replace("learner 1", "learner 0");
        assert_eq!(LearnerProgress::read(&by_snapshot), Some(progress));
        assert_eq!(LearnerProgress::read(""), None);
    }

    #[test]
    fn a_series_is_read_from_whole_and_short_versions() {
        assert_eq!(series("3.6.0"), Some((3, 6)));
        assert_eq!(series("3.6"), Some((3, 6)));
        assert_eq!(series("not_decided"), None);
        assert_eq!(series(""), None);
    }
}
