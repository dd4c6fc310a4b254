//! `etcdrun status [CLUSTER]`: how clusters are, PostgreSQL on them, and other guests. Asks every member through its own host, and changes
//! nothing.

use std::{collections::BTreeSet, path::PathBuf};

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, InventoryArgs},
    clusters::find_cluster,
    health::{ClusterReport, GuestReport, Health, Reports, Row, look},
    postgres::{PostgresQuery, PostgresReport, PostgresRow},
    site::Site,
};
use crate::{
    inventory::{HostId, Inventory},
    model::{ByteSize, one_line},
    report::{Look, Tone},
};

#[derive(Args, Debug)]
#[command(
    after_help = "--limit selects the clusters with a member, or the hypervisor of a member, among these hosts. Without a cluster, PostgreSQL clusters and the other guests of the inventory are shown as well.\n\nThe exit code is 0 if every cluster is healthy and every guest runs, 4 if a host is unreachable, and 2 otherwise."
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
    // A named cluster is all that is asked for.
    let others = inventory.hosts().filter(|host| args.cluster.is_none() && host.is_guest() && host.cluster().is_none());
    let others: Vec<HostId> = others.map(|host| host.id).collect();
    let postgres = if args.cluster.is_none() { PostgresQuery::all(&site) } else { Vec::new() };
    if names.is_empty() && others.is_empty() && postgres.is_empty() {
        return Err(CliError::usage("the inventory has no cluster, and no guest"));
    }
    let (names, others, postgres) = match &selected {
        Some(hosts) => (
            names.into_iter().filter(|name| has_one_of(inventory, name, hosts)).collect(),
            others.into_iter().filter(|id| is_among(inventory, *id, hosts)).collect(),
            postgres.into_iter().filter(|query| query.has_one_of(inventory, hosts)).collect(),
        ),
        None => (names, others, postgres),
    };
    if names.is_empty() && others.is_empty() && postgres.is_empty() {
        return Err(CliError::usage("no cluster has a member among the hosts of --limit, and none of them is a guest"));
    }
    let reports = look(&site, &names, &others, &postgres, &args.connection, invocation)?;
    invocation.print(&match invocation.json {
        true => format!("{:#}\n", serde_json::json!(reports)),
        false => {
            let clusters = reports.clusters.iter().map(|cluster| cluster.text(invocation.stdout));
            let postgres = reports.postgres.iter().map(|report| report.text(invocation.stdout));
            let guests = (!reports.guests.is_empty()).then(|| guests_text(&reports.guests));
            clusters.chain(postgres).chain(guests).collect::<Vec<_>>().join("\n")
        }
    })?;
    Ok(exit(&reports))
}

impl PostgresReport {
    fn text(&self, look: Look) -> String {
        let (word, tone) = if self.healthy { ("healthy", Tone::Good) } else { ("unhealthy", Tone::Bad) };
        let primary =
            self.primary.as_ref().map_or_else(|| "no primary".into(), |name| format!("{name} is the primary"));
        let etcd = self.etcd.as_ref().map(|name| format!(", in etcd {name}")).unwrap_or_default();
        let mut text = format!("PostgreSQL {}: {}, {primary}{etcd}\n", self.name, look.paint(tone, word));
        let head = ["MEMBER", "ROLE", "STATE", "TIMELINE", "LAG"].map(str::to_owned);
        text += &table([head].into_iter().chain(self.members.iter().map(PostgresRow::cells)));
        self.problems.iter().for_each(|problem| text += &format!("  ! {}\n", one_line(problem)));
        self.warnings.iter().for_each(|warning| text += &format!("  warning: {}\n", one_line(warning)));
        text
    }
}

impl PostgresRow {
    fn cells(&self) -> [String; 5] {
        let dash = || "-".to_owned();
        [
            self.member.clone(),
            self.role
                .as_ref()
                .map_or_else(dash, |role| if role == "leader" { "primary".into() } else { role.replace('_', " ") }),
            self.state.clone().unwrap_or_else(|| if self.unreachable { "unreachable".into() } else { dash() }),
            self.timeline.map_or_else(dash, |timeline| timeline.to_string()),
            self.lag.map_or_else(dash, |lag| ByteSize(lag).to_string()),
        ]
    }
}

/// Lines of cells below each other, the first of which are their titles.
fn table<const N: usize>(rows: impl Iterator<Item = [String; N]>) -> String {
    let rows: Vec<[String; N]> = rows.map(|row| row.map(|cell| one_line(&cell))).collect();
    let widths: [usize; N] = std::array::from_fn(|column| rows.iter().map(|row| row[column].len()).max().unwrap_or(0));
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("  {}\n", cells.join("  ").trim_end())
    };
    rows.iter().map(line).collect()
}

fn guests_text(guests: &[GuestReport]) -> String {
    let head = ["GUEST", "HYPERVISOR", "STATE"].map(str::to_owned);
    let rows = guests.iter().map(|it| [&it.name, &it.hypervisor, &it.state].map(String::clone));
    let mut text = "other guests\n".to_owned() + &table([head].into_iter().chain(rows));
    let problems: BTreeSet<&str> = guests.iter().filter_map(|guest| guest.problem.as_deref()).collect();
    problems.into_iter().for_each(|problem| text += &format!("  ! {}\n", one_line(problem)));
    text
}

/// Whether a member of the cluster, or its hypervisor, is one of these hosts. A cluster is shown as a whole: its health is not that of some
/// members.
fn has_one_of(inventory: &Inventory, cluster: &str, hosts: &[HostId]) -> bool {
    let members = inventory.cluster(cluster).into_iter().flat_map(|cluster| &cluster.members);
    members.into_iter().any(|id| is_among(inventory, *id, hosts))
}

/// Whether it, or its hypervisor, is one of these.
fn is_among(inventory: &Inventory, id: HostId, hosts: &[HostId]) -> bool {
    hosts.contains(&id) || inventory.hypervisor_of(id).is_some_and(|host| hosts.contains(&host.id))
}

fn exit(Reports { clusters, guests, postgres }: &Reports) -> Exit {
    let is_silent = clusters.iter().flat_map(|cluster| &cluster.members).any(|row| row.health == Health::Unreachable)
        || guests.iter().any(|it| it.state == "unknown")
        || postgres.iter().flat_map(|report| &report.members).any(|row| row.unreachable);
    let is_well = clusters.iter().all(|cluster| cluster.healthy)
        && guests.iter().all(|guest| guest.problem.is_none())
        && postgres.iter().all(|report| report.healthy);
    match is_silent {
        true => Exit::Unreachable,
        false if is_well => Exit::Success,
        false => Exit::TaskFailed,
    }
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
