//! `etcdrun metrics [CLUSTER...]`: what is known of clusters, certificates, backups and runs, as text for Prometheus. Changes nothing.

use std::{collections::BTreeMap, fmt::Write as _, path::PathBuf};

use clap::Args;
use jiff::Timestamp;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, KnownArgs},
    clusters::find_cluster,
    files::replace,
    health::{ClusterReport, Health, Row, look},
    issued::holders,
    runtime::runtime,
    shelf::{backup_section, wrong},
    site::Site,
};
use crate::{
    backup::{Access, Kept, Manifest, Place, Store, backups},
    state::{RunState, RunSummary, StateFolder},
};

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  etcdrun metrics\n  etcdrun metrics prod --output /var/lib/prometheus/node-exporter/etcdrun.prom\n\nA cluster that cannot be read has the metric etcdrun_cluster_read_success 0; the exit code is 0 then, too. docs/monitoring.md lists the metrics."
)]
pub struct MetricsArgs {
    /// The clusters [default: all]
    #[arg(value_name = "CLUSTER")]
    clusters: Vec<String>,

    /// Replace this file with the metrics, in one step, instead of printing them
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,

    /// The state directory with the certificates and runs [default: .etcdrun next to the inventory]
    #[arg(long, value_name = "FOLDER")]
    state_dir: Option<PathBuf>,

    #[command(flatten)]
    known: KnownArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &MetricsArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let site = Site::load(&args.known, args.state_dir.as_deref(), invocation)?;
    let all = || site.inventory.clusters().map(|cluster| cluster.name.to_string()).collect();
    let names = args.clusters.iter().map(|name| find_cluster(&site.inventory, name));
    let mut names: Vec<String> = names.collect::<Result<_, _>>()?;
    if args.clusters.is_empty() {
        names = all();
    }
    let mut text = Exposition::default();
    text.family("etcdrun_build_info", "The version of etcdrun.");
    text.sample(&[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    text.family("etcdrun_metrics_timestamp_seconds", "When these metrics were collected.");
    text.sample(&[], seconds(Timestamp::now()));
    let reports = look(&site, &names, &[], &[], &args.connection, invocation)?.clusters;
    text.clusters(&reports);
    text.certificates(&site, &names, &reports)?;
    let runs = runs(&site.state);
    text.backups(&stores(&site, &names, invocation)?, &runs);
    text.runs(&runs);
    match &args.output {
        // Node exporter runs as another user.
        Some(file) => replace(file, text.text.as_bytes(), 0o644)
            .map_err(|error| CliError::Unexpected(format!("cannot write {}: {error}", file.display())))?,
        None => invocation.print(&text.text)?,
    }
    Ok(Exit::Success)
}

fn runs(state: &StateFolder) -> Vec<RunSummary> {
    state.ids().iter().filter_map(|id| state.open(id).ok()).map(|run| run.summary()).collect()
}

/// What a cluster's backup location holds, or nothing if it cannot be read.
struct Shelved {
    cluster: String,
    location: String,
    kept: Option<Kept>,
}

/// The locations of the section `backup`. One that cannot be read is a metric, and a warning that says why.
fn stores(site: &Site, names: &[String], invocation: &Invocation) -> Result<Vec<Shelved>, CliError> {
    let runtime = runtime()?;
    let mut found = Vec::new();
    for name in names {
        let section = backup_section(site, name)?;
        let Some(to) = &section.to else { continue };
        let place: Place = to.parse().map_err(wrong)?;
        // Without credentials, or a file with CAs, the other metrics are still worth having.
        let kept = match Store::open(&place, &Access::of(&section)) {
            Ok(store) => runtime.block_on(backups(&store, name)),
            Err(error) => Err(error),
        };
        if let Err(error) = &kept {
            invocation.warn(&format!("cannot read the backups of `{name}`: {error}"));
        }
        found.push(Shelved { cluster: name.clone(), location: place.to_string(), kept: kept.ok() });
    }
    Ok(found)
}

/// The last backup of a cluster that was tried from this state directory.
fn last_attempt<'a>(runs: &'a [RunSummary], cluster: &str) -> Option<&'a RunSummary> {
    let tried = runs.iter().filter(|run| run.state != RunState::Running && is_backup_of(&run.command, cluster));
    tried.max_by_key(|run| run.at)
}

fn is_backup_of(command: &[String], cluster: &str) -> bool {
    let mut words = command.iter().filter(|word| !word.starts_with('-'));
    words.any(|word| word == "backup") && words.any(|word| word == cluster)
}

fn seconds(at: Timestamp) -> f64 {
    at.as_duration().as_secs_f64()
}

/// Prometheus knows no other numbers.
#[expect(clippy::cast_precision_loss, reason = "2^53 is beyond every count and size here")]
fn number(value: impl TryInto<u64>) -> f64 {
    value.try_into().unwrap_or(u64::MAX) as f64
}

fn truth(is: bool) -> f64 {
    f64::from(u8::from(is))
}

type Label<'a> = (&'static str, &'a str);

/// Families of gauges in Prometheus's text format. A family without a sample is left out.
#[derive(Default)]
struct Exposition {
    text: String,
    name: &'static str,
    /// What stands before the first sample of the family.
    head: String,
}

impl Exposition {
    fn family(&mut self, name: &'static str, help: &str) {
        self.head = format!("# HELP {name} {help}\n# TYPE {name} gauge\n");
        self.name = name;
    }

    fn sample(&mut self, labels: &[Label<'_>], value: f64) {
        self.text += &std::mem::take(&mut self.head);
        self.text += self.name;
        for (number, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.text, "{}{label}=\"{value}\"", if number == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.text, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }

    fn clusters(&mut self, reports: &[ClusterReport]) {
        let read = |report: &ClusterReport| report.members.iter().any(|row| row.version.is_some());
        self.family("etcdrun_cluster_info", "A cluster of the inventory, with etcd's cluster version.");
        for report in reports {
            let version = report.cluster_version.as_deref().unwrap_or_default();
            self.sample(&[("cluster", &report.name), ("version", version)], 1.0);
        }
        self.family("etcdrun_cluster_members", "The number of members in the inventory.");
        for report in reports {
            self.sample(&[("cluster", &report.name)], number(report.members.len()));
        }
        self.family("etcdrun_cluster_read_success", "Whether a member of the cluster answered.");
        reports.iter().for_each(|report| self.sample(&[("cluster", &report.name)], truth(read(report))));
        self.family("etcdrun_cluster_healthy", "Whether the cluster is healthy, as in `etcdrun status`.");
        reports.iter().for_each(|report| self.sample(&[("cluster", &report.name)], truth(report.healthy)));
        self.family("etcdrun_cluster_has_leader", "Whether a member says that it is the leader.");
        reports.iter().for_each(|report| self.sample(&[("cluster", &report.name)], truth(report.leader.is_some())));
        self.family("etcdrun_member_info", "A member of the inventory, with what it runs and what it is.");
        for (report, row) in rows(reports) {
            let (version, role) = (row.version.as_deref().unwrap_or_default(), row.role.unwrap_or_default());
            let hypervisor = row.hypervisor.as_deref().unwrap_or_default();
            let labels = [("version", version), ("role", role), ("hypervisor", hypervisor)];
            self.sample(&[&of_member(report, row)[..], &labels].concat(), 1.0);
        }
        self.family("etcdrun_member_healthy", "Whether the member is healthy, as in `etcdrun status`.");
        rows(reports)
            .for_each(|(report, row)| self.sample(&of_member(report, row), truth(row.health == Health::Healthy)));
        self.family("etcdrun_member_reachable", "Whether the member's host can be reached over SSH.");
        rows(reports)
            .for_each(|(report, row)| self.sample(&of_member(report, row), truth(row.health != Health::Unreachable)));
        self.family("etcdrun_member_alarm", "Whether etcd has raised this alarm for the member.");
        for (report, row) in rows(reports).filter(|(_, row)| row.version.is_some()) {
            let known = ["NOSPACE", "CORRUPT"];
            let others = row.alarms.iter().map(String::as_str).filter(|alarm| !known.contains(alarm));
            for alarm in known.into_iter().chain(others) {
                let is_raised = row.alarms.iter().any(|raised| raised == alarm);
                self.sample(&[&of_member(report, row)[..], &[("alarm", alarm)]].concat(), truth(is_raised));
            }
        }
        type Size = fn(&Row) -> Option<u64>;
        let sizes: [(&'static str, &str, Size); 3] = [
            ("etcdrun_member_db_size_bytes", "The size of the member's database file.", |row| row.db_size),
            ("etcdrun_member_db_quota_bytes", "The size at which etcd rejects writes.", |row| row.db_quota),
            ("etcdrun_member_raft_index", "The last Raft entry that the member has.", |row| row.raft_index),
        ];
        for (name, help, value) in sizes {
            self.family(name, help);
            for (report, row) in rows(reports) {
                if let Some(value) = value(row) {
                    self.sample(&of_member(report, row), number(value));
                }
            }
        }
    }

    /// Of members the certificates that they show; of the others those that were issued here.
    fn certificates(&mut self, site: &Site, names: &[String], reports: &[ClusterReport]) -> Result<(), CliError> {
        self.family("etcdrun_certificate_not_after_timestamp_seconds", "When a certificate ends.");
        // While one CA takes the place of another, both may have the same name: the one that ends first counts.
        let mut ends: BTreeMap<(String, &str, String), Timestamp> = BTreeMap::new();
        for holder in if names.is_empty() { Vec::new() } else { holders(&site.inventory, names)? } {
            for row in holder.rows(site.state.path())?.into_iter().filter(|row| row.kind != "member") {
                let end = ends.entry((row.cluster, row.kind, row.name)).or_insert(row.not_after);
                *end = row.not_after.min(*end);
            }
        }
        for ((cluster, kind, name), end) in &ends {
            self.sample(&[("cluster", cluster), ("kind", kind), ("name", name)], seconds(*end));
        }
        for (report, row) in rows(reports) {
            if let Some(not_after) = row.not_after {
                let labels = [("cluster", report.name.as_str()), ("kind", "member"), ("name", &row.member)];
                self.sample(&labels, seconds(not_after));
            }
        }
        Ok(())
    }

    fn backups(&mut self, stores: &[Shelved], runs: &[RunSummary]) {
        fn labels(store: &Shelved) -> [Label<'_>; 2] {
            [("cluster", &store.cluster), ("location", &store.location)]
        }
        self.family("etcdrun_backup_read_success", "Whether the backup location of the cluster can be read.");
        stores.iter().for_each(|store| self.sample(&labels(store), truth(store.kept.is_some())));
        type Value = fn(&Kept) -> Option<f64>;
        fn newest(kept: &Kept) -> Option<&Manifest> {
            kept.backups.iter().max_by_key(|manifest| manifest.taken)
        }
        let values: [(&'static str, &str, Value); 5] = [
            ("etcdrun_backup_newest_timestamp_seconds", "When the newest backup was taken.", |kept| {
                newest(kept).map(|backup| seconds(backup.taken))
            }),
            ("etcdrun_backup_newest_size_bytes", "The size of the newest backup as stored.", |kept| {
                newest(kept).map(|backup| number(backup.stored_size))
            }),
            ("etcdrun_backup_newest_revision", "The revision of the newest backup.", |kept| {
                newest(kept).map(|backup| number(u64::try_from(backup.revision).unwrap_or_default()))
            }),
            ("etcdrun_backups", "The number of backups.", |kept| Some(number(kept.backups.len()))),
            ("etcdrun_backups_damaged", "The number of backups whose manifest cannot be read.", |kept| {
                Some(number(kept.damaged.len()))
            }),
        ];
        for (name, help, value) in values {
            self.family(name, help);
            for (store, kept) in stores.iter().filter_map(|store| Some((store, store.kept.as_ref()?))) {
                if let Some(value) = value(kept) {
                    self.sample(&labels(store), value);
                }
            }
        }
        let attempts = stores.iter().filter_map(|store| Some((store, last_attempt(runs, &store.cluster)?)));
        let attempts: Vec<(&Shelved, &RunSummary)> = attempts.collect();
        self.family(
            "etcdrun_backup_last_attempt_timestamp_seconds",
            "When the last backup from this state directory began.",
        );
        for (store, run) in &attempts {
            self.sample(&labels(store), seconds(Timestamp::from_millisecond(run.at).unwrap_or_default()));
        }
        self.family("etcdrun_backup_last_attempt_success", "Whether it succeeded.");
        attempts.iter().for_each(|(store, run)| self.sample(&labels(store), truth(run.state == RunState::Done)));
    }

    fn runs(&mut self, runs: &[RunSummary]) {
        use RunState::{Crashed, Done, Failed, Interrupted, Running};
        self.family("etcdrun_runs", "How many runs in the state directory are in this state.");
        for state in [Running, Done, Failed, Interrupted, Crashed] {
            let count = runs.iter().filter(|run| run.state == state).count();
            self.sample(&[("state", state.name())], number(count));
        }
    }
}

fn rows(reports: &[ClusterReport]) -> impl Iterator<Item = (&ClusterReport, &Row)> {
    reports.iter().flat_map(|report| report.members.iter().map(move |row| (report, row)))
}

fn of_member<'a>(report: &'a ClusterReport, row: &'a Row) -> [Label<'a>; 2] {
    [("cluster", &report.name), ("member", &row.member)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_escaped_and_empty_families_left_out() {
        let mut text = Exposition::default();
        text.family("none", "Without a sample.");
        text.family("one", "With one.");
        text.sample(&[("a", "x\"y\\z\n"), ("b", "")], 1.5);
        text.sample(&[], 2.0);
        assert_eq!(text.text, "# HELP one With one.\n# TYPE one gauge\none{a=\"x\\\"y\\\\z\\n\",b=\"\"} 1.5\none 2\n");
    }

    #[test]
    fn only_backups_of_the_cluster_are_attempts() {
        let is = |words: &str| {
            let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
            is_backup_of(&words, "prod")
        };
        assert!(is("backup prod --to file:x") && is("--plain -v backup prod"));
        assert!(!is("restore prod --from file:x") && !is("backup test") && !is("member restart prod"));
    }
}
