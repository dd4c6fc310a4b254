//! How clusters are: what every member says of itself through its own host, and what follows for the cluster. Changes nothing. For `status` and
//! `metrics`.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use futures_util::future::join_all;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::timeout;

use super::{
    CliError, Invocation,
    args::ConnectionArgs,
    postgres::{PostgresQuery, PostgresReport},
    query::{Answer, ClusterQuery, LIMIT, Wanted},
    site::Site,
    visit::Hosts,
};
use crate::{
    etcd::{
        advisories::Concern,
        observe::{AlarmKind, Observation},
    },
    inventory::HostId,
    membership::{InventoryMember, disagreements, orphan},
    model::Version,
    modules::{GuestStates, guest_states},
    report::sanitize,
};

/// How everything is that was asked for.
#[derive(Debug, Serialize)]
pub struct Reports {
    pub clusters: Vec<ClusterReport>,
    pub guests: Vec<GuestReport>,
    pub postgres: Vec<PostgresReport>,
}

/// Asks all members of these clusters and of these PostgreSQL clusters, and the hypervisors of these guests that are no members.
pub fn look(
    site: &Site,
    names: &[String],
    others: &[HostId],
    postgres: &[PostgresQuery],
    connection: &ConnectionArgs,
    invocation: &Invocation,
) -> Result<Reports, CliError> {
    let limit = connection.connect_timeout.map_or(LIMIT, |seconds| LIMIT.max(Duration::from_secs(seconds)));
    let queries = names.iter().map(|name| ClusterQuery::new(site, name, limit));
    let queries: Vec<ClusterQuery> = queries.collect::<Result<_, _>>()?;
    let hosts = site.connect(connection, invocation)?;
    let reports = hosts.runtime.block_on(async {
        let asking = join_all(queries.iter().map(|query| query.ask_all(&hosts.visit, site.sources.opener())));
        let asking_postgres = join_all(postgres.iter().map(|query| query.look(&hosts, limit)));
        let (answers, guests, postgres) =
            tokio::join!(asking, guests(&queries, others, &hosts, limit), asking_postgres);
        let clusters = queries.iter().zip(answers).map(|(query, answers)| query.report(answers, &guests)).collect();
        let guests = others.iter().filter_map(|id| GuestReport::of(&hosts, *id, &guests)).collect();
        Reports { clusters, guests, postgres }
    });
    hosts.leave();
    Ok(reports)
}

/// A guest that is no member of a cluster.
#[derive(Debug, Serialize)]
pub struct GuestReport {
    pub name: String,
    pub hypervisor: String,
    /// In libvirt's words; `absent`, or `unknown` with a problem.
    pub state: String,
    pub problem: Option<String>,
}

impl GuestReport {
    fn of(hosts: &Hosts, id: HostId, guests: &Guests) -> Option<Self> {
        let name = hosts.inventory.host_by_id(id).name.to_string();
        let hypervisor = hosts.inventory.hypervisor_of(id)?;
        let (state, problem) = match &guests.get(&hypervisor.id)?.states {
            Ok(seen) => (seen.states.get(&name).cloned().unwrap_or_else(|| "absent".into()), None),
            Err(why) => ("unknown".to_owned(), Some(sanitize(why).into_owned())),
        };
        let problem = problem.or_else(|| match state.as_str() {
            "running" => None,
            "absent" => Some(format!("{name} does not exist; `etcdrun playbook site.yaml -l {name}` creates it")),
            state => Some(format!("{name} is {state}; `etcdrun playbook site.yaml -l {name}` starts it")),
        });
        Some(Self { name, hypervisor: hypervisor.name.to_string(), state, problem })
    }
}

impl ClusterQuery {
    fn report(&self, answers: Vec<Answer>, guests: &Guests) -> ClusterReport {
        let seen = answers.iter().filter_map(|answer| match answer {
            Answer::Seen(seen, _) => Some((**seen).clone()),
            _ => None,
        });
        let observation = Observation { members: seen.collect(), auth: None };
        // One that has no member of this cluster is not missed.
        let own = self.members.iter().filter(|member| member.is_guest).filter_map(|member| member.hypervisor.as_ref());
        let own: BTreeSet<HostId> = own.map(|(id, _)| *id).collect();
        let silent = own.iter().filter_map(|id| guests.get(id)).filter_map(|seen| seen.states.as_ref().err());
        let mut problems: Vec<String> = silent.cloned().collect();
        let leader = observation.leader().map(|(name, _)| name.to_owned());
        let rows = self.members.iter().zip(answers).map(|(member, answer)| {
            let guest = member.hypervisor.as_ref().filter(|_| member.is_guest).and_then(|(id, _)| guests.get(id));
            let guest = guest.map(|seen| match &seen.states {
                Ok(seen) => seen.states.get(&member.name).cloned().unwrap_or_else(|| "absent".into()),
                Err(_) => "unknown".into(),
            });
            self.row(member, answer, guest, &observation, &mut problems)
        });
        let rows: Vec<Row> = rows.collect();
        let known = self.members.iter().zip(&rows).map(|(member, row)| InventoryMember {
            name: &member.name,
            ip: &member.ip,
            guest: row.guest.as_deref(),
        });
        let is_lost = observation.views().any(|(_, view)| view.lacks_majority);
        if is_lost && observation.views().all(|(_, view)| view.read.is_err()) {
            problems.push(format!(
                "`{0}` has lost quorum; run `etcdrun recover {0} --check` to see what data survives and what recovery would do",
                self.name
            ));
        }
        problems.extend(disagreements(&self.name, &observation, &known.collect::<Vec<_>>()));
        problems.extend(self.orphans(guests));
        problems.dedup();
        let cluster_version = observation.views().find_map(|(_, view)| view.cluster_version);
        ClusterReport {
            name: self.name.clone(),
            healthy: problems.is_empty() && rows.iter().all(|row| row.health == Health::Healthy),
            leader,
            cluster_version: cluster_version.map(|(major, minor)| format!("{major}.{minor}")),
            members: rows,
            problems,
            warnings: advised(&observation),
        }
    }

    /// Guests that were made for the cluster, and are none of its members where they are.
    fn orphans(&self, guests: &Guests) -> Vec<String> {
        let mut orphans = Vec::new();
        for (id, seen) in guests {
            let made = seen.states.iter().flat_map(|states| &states.made).filter(|guest| guest.cluster == self.name);
            for guest in made {
                let member = self.members.iter().find(|member| member.name == guest.name);
                let place = member.and_then(|member| member.hypervisor.as_ref());
                if place.is_none_or(|(place, _)| place != id) {
                    orphans.push(orphan(guest, &seen.hypervisor, place.map(|(_, name)| name.as_str())));
                }
            }
        }
        orphans
    }

    fn alarm_problem(&self, member: &str, alarm: &str) -> String {
        let what = format!("{member} has the alarm {alarm}");
        match alarm {
            "NOSPACE" => {
                format!("{what}: writes are rejected; `etcdrun playbook nospace.yaml -l {}` frees space", self.name)
            }
            _ => what,
        }
    }

    fn row(
        &self,
        member: &Wanted,
        answer: Answer,
        guest: Option<String>,
        observation: &Observation,
        problems: &mut Vec<String>,
    ) -> Row {
        let mut row = Row {
            member: member.name.clone(),
            hypervisor: member.hypervisor.as_ref().map(|(_, name)| name.clone()),
            guest,
            ..Row::default()
        };
        let (seen, not_after) = match answer {
            Answer::Seen(seen, not_after) => (seen, not_after),
            Answer::Unreachable(why) => {
                row.health = Health::Unreachable;
                problems.push(format!("{}: {}", member.name, sanitize(&why)));
                return row;
            }
            Answer::Silent(why) => {
                problems.push(why);
                return row;
            }
        };
        // One that does not show it may still have been given one here.
        let issued = || self.store.issued(&member.name).ok().flatten()?.not_after.parse().ok();
        row.not_after = not_after.or_else(issued);
        row.certificate_days = row.not_after.map(days_left);
        if let Some(trouble) = seen.trouble() {
            problems.push(sanitize(&trouble).into_owned());
        }
        let Ok(view) = &seen.answer else { return row };
        let leads = observation.leader().is_some_and(|(_, leader)| leader.id == view.id);
        row.version = Some(view.version.to_string());
        row.role = Some(match (view.is_learner, leads) {
            (true, _) => "learner",
            (false, true) => "leader",
            (false, false) => "follower",
        });
        row.raft_index = Some(view.raft_index);
        row.db_size = Some(view.db_size);
        row.db_quota = Some(view.quota.unwrap_or(member.quota));
        row.alarms =
            view.alarms.iter().filter(|alarm| alarm.member == view.id).map(|it| alarm_name(&it.kind)).collect();
        problems.extend(row.alarms.iter().map(|alarm| self.alarm_problem(&member.name, alarm)));
        row.health = if seen.is_well() && row.alarms.is_empty() { Health::Healthy } else { Health::Unhealthy };
        row
    }
}

/// What is known to be wrong with the releases that members run. It does not make a cluster unhealthy.
fn advised(observation: &Observation) -> Vec<String> {
    let mut running: BTreeMap<Version, Vec<&str>> = BTreeMap::new();
    for (name, view) in observation.views() {
        running.entry(view.version).or_default().push(name);
    }
    let told = |(version, names): (Version, Vec<&str>)| {
        let concern = Concern::of(version)?;
        let (fixed, all) = (concern.fixed_in, concern.told());
        Some(format!("etcd {version} on {} has known problems: {all}; upgrade to {fixed} or later", names.join(", ")))
    };
    running.into_iter().filter_map(told).collect()
}

fn alarm_name(kind: &AlarmKind) -> String {
    match kind {
        AlarmKind::Nospace => "NOSPACE".into(),
        AlarmKind::Corrupt => "CORRUPT".into(),
        AlarmKind::Other(name) => sanitize(name).into_owned(),
    }
}

fn days_left(not_after: Timestamp) -> i64 {
    not_after.duration_since(Timestamp::now()).as_secs().div_euclid(86_400)
}

/// By hypervisor.
type Guests = BTreeMap<HostId, SeenGuests>;

struct SeenGuests {
    hypervisor: String,
    /// What it says, or why it says nothing.
    states: Result<GuestStates, String>,
}

/// Asks hypervisors for their guests, each once. Those without members are asked too: a guest may be left there.
async fn guests(queries: &[ClusterQuery], others: &[HostId], hosts: &Hosts, limit: Duration) -> Guests {
    let mut by_hypervisor: BTreeMap<HostId, Vec<&str>> = BTreeMap::new();
    for id in others {
        if let Some(hypervisor) = hosts.inventory.hypervisor_of(*id) {
            by_hypervisor.entry(hypervisor.id).or_default().push(hosts.inventory.host_by_id(*id).name.as_str());
        }
    }
    for member in queries.iter().flat_map(|query| &query.members) {
        if let Some((id, _)) = member.hypervisor.as_ref().filter(|_| member.is_guest) {
            by_hypervisor.entry(*id).or_default().push(&member.name);
        }
    }
    if by_hypervisor.is_empty() {
        return Guests::new();
    }
    for host in hosts.inventory.hypervisors() {
        by_hypervisor.entry(host.id).or_default();
    }
    let asking = by_hypervisor.into_iter().map(|(id, names)| async move {
        let hypervisor = hosts.inventory.host_by_id(id).name.to_string();
        let states = match timeout(limit, guest_states(&hosts.visit.session(id), &names)).await {
            Ok(states) => states.map_err(|error| format!("{hypervisor}: {error}")),
            Err(_) => Err(format!("{hypervisor}: no answer within {limit:?}")),
        };
        (id, SeenGuests { hypervisor, states })
    });
    join_all(asking).await.into_iter().collect()
}

#[derive(Debug, Serialize)]
pub struct ClusterReport {
    pub name: String,
    pub healthy: bool,
    pub leader: Option<String>,
    pub cluster_version: Option<String>,
    pub members: Vec<Row>,
    pub problems: Vec<String>,
    pub warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Health {
    Healthy,
    /// It says itself, or lets see, that something is wrong.
    #[default]
    Unhealthy,
    Unreachable,
}

#[derive(Debug, Default, Serialize)]
pub struct Row {
    pub member: String,
    pub hypervisor: Option<String>,
    pub guest: Option<String>,
    pub version: Option<String>,
    pub role: Option<&'static str>,
    pub raft_index: Option<u64>,
    pub db_size: Option<u64>,
    pub db_quota: Option<u64>,
    pub health: Health,
    pub alarms: Vec<String>,
    pub certificate_days: Option<i64>,
    #[serde(skip)]
    pub not_after: Option<Timestamp>,
}
