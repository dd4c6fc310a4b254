//! `etcdrun status [CLUSTER]`: how clusters are. Asks every member through its own host, and changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use clap::Args;
use futures_util::future::join_all;
use jiff::Timestamp;
use serde::Serialize;
use tokio::time::timeout;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, InventoryArgs},
    clusters::find_cluster,
    query::{Answer, ClusterQuery, LIMIT, Wanted},
    site::Site,
    visit::Hosts,
};
use crate::{
    etcd::{
        advisories::Concern,
        observe::{AlarmKind, Observation},
    },
    inventory::{HostId, Inventory},
    membership::{InventoryMember, disagreements, orphan},
    model::{ByteSize, Version, one_line},
    modules::{GuestStates, guest_states},
    report::{Look, Tone, sanitize},
};

#[derive(Args, Debug)]
#[command(
    after_help = "--limit selects the clusters with a member, or the hypervisor of a member, among these hosts.\n\nThe exit code is 0 if every cluster is healthy, 4 if a host is unreachable, and 2 otherwise."
)]
pub struct StatusArgs {
    /// The cluster [default: all]
    cluster: Option<String>,

    /// The state directory with the certificates [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &StatusArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let mut site = Site::load(&args.inventory.known, args.state_dir.as_deref(), invocation)?;
    let selected = site.select(args.inventory.only.limit.as_deref(), invocation)?;
    let inventory = &site.inventory;
    let names: Vec<String> = match &args.cluster {
        Some(name) => vec![find_cluster(inventory, name)?],
        None => inventory.clusters().map(|cluster| cluster.name.to_string()).collect(),
    };
    if names.is_empty() {
        return Err(CliError::usage("the inventory has no cluster"));
    }
    let names: Vec<String> = match &selected {
        Some(hosts) => names.into_iter().filter(|name| has_one_of(inventory, name, hosts)).collect(),
        None => names,
    };
    if names.is_empty() {
        return Err(CliError::usage("no cluster has a member among the hosts of --limit"));
    }
    let limit = args.connection.connect_timeout.map_or(LIMIT, |seconds| LIMIT.max(Duration::from_secs(seconds)));
    let queries = names.iter().map(|name| ClusterQuery::new(&site, name, limit));
    let queries: Vec<ClusterQuery> = queries.collect::<Result<_, _>>()?;
    let hosts = site.connect(&args.connection, invocation)?;
    let clusters: Vec<ClusterReport> = hosts.runtime.block_on(async {
        let asking = join_all(queries.iter().map(|query| query.ask_all(&hosts.visit, site.sources.opener())));
        let (answers, guests) = tokio::join!(asking, guests(&queries, &hosts, limit));
        queries.iter().zip(answers).map(|(query, answers)| query.report(answers, &guests)).collect()
    });
    hosts.leave();
    invocation.print(&match invocation.json {
        true => format!("{:#}\n", serde_json::json!({ "clusters": clusters })),
        false => clusters.iter().map(|cluster| cluster.text(invocation.stdout)).collect::<Vec<_>>().join("\n"),
    })?;
    Ok(exit(&clusters))
}

/// Whether a member of the cluster, or its hypervisor, is one of these hosts. A cluster is shown as a whole: its health is not that of some
/// members.
fn has_one_of(inventory: &Inventory, cluster: &str, hosts: &[HostId]) -> bool {
    let members = inventory.cluster(cluster).into_iter().flat_map(|cluster| &cluster.members);
    let is_one = |id: &HostId| hosts.contains(id);
    members.into_iter().any(|id| is_one(id) || inventory.hypervisor_of(*id).is_some_and(|host| is_one(&host.id)))
}

fn exit(clusters: &[ClusterReport]) -> Exit {
    let rows = || clusters.iter().flat_map(|cluster| &cluster.members);
    match rows().any(|row| row.health == Health::Unreachable) {
        true => Exit::Unreachable,
        false if clusters.iter().all(|cluster| cluster.healthy) => Exit::Success,
        false => Exit::TaskFailed,
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
        row.certificate_days = not_after.or_else(issued).map(days_left);
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
async fn guests(queries: &[ClusterQuery], hosts: &Hosts, limit: Duration) -> Guests {
    let mut by_hypervisor: BTreeMap<HostId, Vec<&str>> = BTreeMap::new();
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
struct ClusterReport {
    name: String,
    healthy: bool,
    leader: Option<String>,
    cluster_version: Option<String>,
    members: Vec<Row>,
    problems: Vec<String>,
    warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Health {
    Healthy,
    /// It says itself, or lets see, that something is wrong.
    #[default]
    Unhealthy,
    Unreachable,
}

#[derive(Debug, Default, Serialize)]
struct Row {
    member: String,
    hypervisor: Option<String>,
    guest: Option<String>,
    version: Option<String>,
    role: Option<&'static str>,
    raft_index: Option<u64>,
    db_size: Option<u64>,
    db_quota: Option<u64>,
    health: Health,
    alarms: Vec<String>,
    certificate_days: Option<i64>,
}

const HEAD: [&str; 10] =
    ["MEMBER", "HYPERVISOR", "GUEST", "VERSION", "ROLE", "RAFT INDEX", "DB SIZE", "HEALTH", "ALARMS", "CERTIFICATE"];
/// The place of `HEALTH`.
const HEALTH: usize = 7;

impl ClusterReport {
    fn text(&self, look: Look) -> String {
        let healthy = self.members.iter().filter(|row| row.health == Health::Healthy).count();
        let (word, tone) = if self.healthy { ("healthy", Tone::Good) } else { ("unhealthy", Tone::Bad) };
        let leader = self.leader.as_ref().map_or_else(|| "no leader".into(), |name| format!("{name} is the leader"));
        let all = self.members.len();
        let mut text = format!("{}: {}, {healthy} of {all} members, {leader}\n", self.name, look.paint(tone, word));
        let cells: Vec<[String; 10]> = self.members.iter().map(|row| row.cells().map(|cell| one_line(&cell))).collect();
        let widths: Vec<usize> = (0..HEAD.len())
            .map(|column| cells.iter().map(|row| row[column].len()).chain([HEAD[column].len()]).max().unwrap_or(0))
            .collect();
        let mut line = |cells: &[String], tone: Tone| {
            let padded = cells.iter().zip(&widths).enumerate().map(|(column, (cell, width))| {
                let cell = format!("{cell:width$}");
                if column == HEALTH { look.paint(tone, cell).to_string() } else { cell }
            });
            let row = padded.collect::<Vec<_>>().join("  ");
            text += &format!("  {}\n", row.trim_end());
        };
        line(&HEAD.map(str::to_owned), Tone::Plain);
        for (row, cells) in self.members.iter().zip(&cells) {
            line(cells, if row.health == Health::Healthy { Tone::Good } else { Tone::Bad });
        }
        self.problems.iter().for_each(|problem| text += &format!("  ! {}\n", one_line(problem)));
        self.warnings.iter().for_each(|warning| text += &format!("  warning: {}\n", one_line(warning)));
        text
    }
}

impl Row {
    fn cells(&self) -> [String; 10] {
        let dash = || "-".to_owned();
        let text = |value: &Option<String>| value.clone().unwrap_or_else(dash);
        let size = match (self.db_size, self.db_quota) {
            (Some(size), Some(quota)) => format!("{} of {}", ByteSize(size), ByteSize(quota)),
            _ => dash(),
        };
        let days = |days: i64| if days < 0 { "expired".to_owned() } else { format!("{days} days") };
        [
            self.member.clone(),
            text(&self.hypervisor),
            text(&self.guest),
            text(&self.version),
            self.role.map_or_else(dash, str::to_owned),
            self.raft_index.map_or_else(dash, |index| index.to_string()),
            size,
            match self.health {
                Health::Healthy => "healthy",
                Health::Unhealthy => "unhealthy",
                Health::Unreachable => "unreachable",
            }
            .to_owned(),
            if self.alarms.is_empty() { dash() } else { self.alarms.join(",") },
            self.certificate_days.map_or_else(dash, days),
        ]
    }
}
