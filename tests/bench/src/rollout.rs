//! Rollouts on hosts of the lab, with real servers, while a client writes: what the client notices, whether anything of it is
//! lost, and how long it takes beside a script that does the same by hand. A naive serial restart stands beside it.

use std::{fs, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result};

use crate::{
    cluster::{Cluster, IN_MEMORY, Release, Wanted, credential, etcdctl},
    process::measure_behind,
    seen::{beside_quiet, is_enough, lost, milliseconds, quiet, rate, small, tell_gaps},
    site::{Lab, etcdrun, etcdrun_behind, lab},
    table::{Row, percentile},
    taken::{Counted, Ticks, is_much, left_alone},
    works::Bench,
    writer::{self, Manner, Writer, Written},
};

/// Between two acknowledged writes, in milliseconds, in 95 of 100 runs.
pub const GAP_LIMIT: f64 = 50.0;
/// In the worst run: etcd's election time-out.
pub const WORST_LIMIT: f64 = 1000.0;
const WALL_BAR: f64 = 1.1;
/// Between members, there and back. The client may wait for four of them more.
const ROUND_TRIP: Duration = Duration::from_millis(20);
const ROUND_TRIPS: f64 = 4.0;
/// Longer than etcd itself takes to give up on a write.
const UNHEDGED: Duration = Duration::from_secs(10);
/// A script's time is known after so many rounds.
const REFERENCES: usize = 3;
const DATA: u64 = 1 << 30;
/// What Kubernetes keeps is of this size, rather than of a mebibyte.
const VALUE: usize = 8 << 10;

/// A cluster, and where it is to go.
#[derive(Clone, Copy)]
struct Case {
    members: usize,
    from: &'static str,
    hops: &'static [&'static str],
    auth: bool,
    /// With 1 GiB in it.
    full: bool,
    /// Members are far from each other.
    far: bool,
    /// The client asks another member when one is slow.
    hedges: bool,
}

const PLAIN: Case =
    Case { members: 3, from: "3.4", hops: &["3.5", "3.6", "3.7"], auth: false, full: false, far: false, hedges: true };
const AUTH: Case = Case { from: "3.5", hops: &["3.6", "3.7"], auth: true, ..PLAIN };

/// Who does it.
#[derive(Clone, Copy, PartialEq)]
enum Who {
    Etcdrun,
    Reference,
    Naive,
}

/// What came of one run.
struct Run {
    seconds: f64,
    written: Written,
    /// What the same client saw afterwards, for as long, when nothing was changed: of etcdrun's own runs.
    quiet: Option<Written>,
    lost: usize,
    crashed: usize,
    /// What others took of the processors meanwhile, in percent.
    taken: f64,
}

impl Run {
    fn taken(&self) -> f64 {
        self.taken
    }

    /// The longest gap, in milliseconds.
    fn longest(&self) -> f64 {
        milliseconds(self.written.longest)
    }

    /// That of the same client when nothing is changed.
    fn longest_quiet(&self) -> Option<f64> {
        self.quiet.as_ref().map(|quiet| milliseconds(quiet.longest))
    }
}

pub fn plain(bench: &mut Bench) -> Result<Vec<Row>> {
    beside_reference(bench, PLAIN)
}

pub fn auth(bench: &mut Bench) -> Result<Vec<Row>> {
    beside_reference(bench, AUTH)
}

pub fn five_plain(bench: &mut Bench) -> Result<Vec<Row>> {
    alone(bench, Case { members: 5, ..PLAIN })
}

pub fn five_auth(bench: &mut Bench) -> Result<Vec<Row>> {
    alone(bench, Case { members: 5, ..AUTH })
}

pub fn full(bench: &mut Bench) -> Result<Vec<Row>> {
    alone(bench, Case { full: true, ..AUTH })
}

pub fn far(bench: &mut Bench) -> Result<Vec<Row>> {
    alone(bench, Case { far: true, ..AUTH })
}

/// What a client sees that waits for the one member it has asked: a write that gets to the leader while the lead is handed over is
/// dropped without a word. No bar holds for its gaps.
pub fn unhedged(bench: &mut Bench) -> Result<Vec<Row>> {
    let case = Case { hedges: false, ..AUTH };
    let counted = left_alone(bench.rollouts, Run::taken, |round| once(bench, case, Who::Etcdrun, round))?;
    let freed = |row: Row| if row.unit == "ms" { Row { bar: None, ok: true, ..row } } else { row };
    Ok(case.rows(&counted).into_iter().map(freed).collect())
}

/// The serial restart of many scripts. It waits for health only, so a server of 3.7 starts while the cluster's version is
/// still 3.5, and crashes.
pub fn naive(bench: &mut Bench) -> Result<Vec<Row>> {
    let wanted = bench.rollouts;
    let ours = left_alone(wanted, Run::taken, |round| once(bench, AUTH, Who::Etcdrun, round))?.runs;
    let theirs = left_alone(wanted, Run::taken, |round| once(bench, AUTH, Who::Naive, round))?.runs;
    let name = |what: &str| format!("rollout: {}: {what}", AUTH.name());
    let beside = |what: &str, unit, of: fn(&Run) -> f64| {
        let (ours, theirs): (Vec<f64>, Vec<f64>) = (ours.iter().map(of).collect(), theirs.iter().map(of).collect());
        Row::beside(&name(what), unit, &ours, "naive serial restart", &theirs)
    };
    Ok(vec![
        beside("members that crash and stay down", "", |run| small(run.crashed)),
        beside("the longest gap between writes", "ms", Run::longest),
        beside("attempts of the client that failed", "", |run| small(run.written.errors.len())),
    ])
}

fn alone(bench: &mut Bench, case: Case) -> Result<Vec<Row>> {
    Ok(case.rows(&left_alone(bench.rollouts, Run::taken, |round| once(bench, case, Who::Etcdrun, round))?))
}

/// Both are left alone by other machines, so neither has to be next to the other.
fn beside_reference(bench: &mut Bench, case: Case) -> Result<Vec<Row>> {
    let references = bench.rollouts.min(REFERENCES);
    let theirs = left_alone(references, Run::taken, |round| once(bench, case, Who::Reference, round))?.runs;
    let counted = left_alone(bench.rollouts, Run::taken, |round| once(bench, case, Who::Etcdrun, round))?;
    let (mut rows, ours) = (case.rows(&counted), counted.runs);
    let seconds = |runs: &[Run]| -> Vec<f64> { runs.iter().map(|run| run.seconds).collect() };
    let name = |what: &str| format!("rollout: {}: {what}", case.name());
    let peer = "the same steps and gates by a script";
    rows.push(Row::within(&name("wall clock"), "s", &seconds(&ours), peer, &seconds(&theirs), WALL_BAR));
    let gaps = |runs: &[Run]| -> Vec<f64> { runs.iter().map(Run::longest).collect() };
    rows.push(Row::beside(&name("the longest gap, median"), "ms", &gaps(&ours), peer, &gaps(&theirs)));
    Ok(rows)
}

impl Case {
    fn name(&self) -> String {
        let to = self.hops.last().unwrap_or(&self.from);
        let access = if self.auth { "TLS and authentication" } else { "no authentication" };
        let more = match self {
            Self { full: true, .. } => ", 1 GiB of data",
            Self { far: true, .. } => ", 20 ms between members",
            Self { hedges: false, .. } => ", a client that asks one member at a time",
            _ => "",
        };
        format!("{} members {} → {to}, {access}{more}", self.members, self.from)
    }

    fn rows(&self, Counted { runs, disturbed }: &Counted<Run>) -> Vec<Row> {
        let name = |what: &str| format!("rollout: {}: {what}", self.name());
        let gaps: Vec<f64> = runs.iter().map(Run::longest).collect();
        let quiet: Vec<f64> = runs.iter().filter_map(Run::longest_quiet).collect();
        let more = if self.far { milliseconds(ROUND_TRIP) * ROUND_TRIPS } else { 0.0 };
        let of = |what, value: f64, limit| Row { times: runs.len(), ..Row::limit(&name(what), "ms", &[value], limit) };
        let writes: usize = runs.iter().map(|run| run.written.acknowledged.len()).sum();
        let lost: usize = runs.iter().map(|run| run.lost).sum();
        let retries: Vec<f64> = runs.iter().map(|run| small(run.written.errors.len())).collect();
        let slowest: Vec<f64> = runs.iter().map(|run| milliseconds(run.written.slowest)).collect();
        vec![
            of("longest gap between writes, p95 of the runs", percentile(&gaps, 0.95), GAP_LIMIT + more),
            of("longest gap, the worst run", percentile(&gaps, 1.0), WORST_LIMIT),
            beside_quiet(&name("longest gap between writes, median"), &gaps, &quiet),
            Row::none(&name(&format!("lost of {writes} acknowledged writes")), lost, runs.len()),
            Row::figure(&name("runs that other VMs disturbed"), "", &[small(*disturbed)]),
            Row::figure(&name("retries of the client in a run"), "", &retries),
            Row::figure(&name("slowest single write"), "ms", &slowest),
        ]
    }

    /// Where members are far from each other one write after the other is too slow: several are on their way at once.
    fn manner(&self) -> Manner {
        let usual = Manner::default();
        match self {
            Self { hedges: false, .. } => Manner { patience: UNHEDGED, ..usual },
            Self { far: true, .. } => Manner { lanes: 16, patience: usual.patience + ROUND_TRIP * 4, ..usual },
            _ => usual,
        }
    }
}

/// A cluster of its own for each run.
fn make(bench: &Bench, case: Case, name: &str) -> Result<Cluster> {
    let minors: Vec<&str> = std::iter::once(case.from).chain(case.hops.iter().copied()).collect();
    let wanted = Wanted { members: case.members, minors: &minors, auth: case.auth, data_dir: IN_MEMORY, settings: "" };
    let cluster = Cluster::make(bench, name, wanted)?;
    if case.full {
        writer::fill(&cluster.members, &cluster.credential()?, DATA / VALUE as u64, VALUE)?;
    }
    cluster.wants(wanted, case.hops.len())?;
    if case.far {
        // Each way, at each of two members.
        let each = format!("{}ms", ROUND_TRIP.as_millis() / 4);
        for (name, _) in &cluster.members {
            lab(&["delay", name, &each])?;
        }
    }
    Ok(cluster)
}

/// A script with all that it needs to do the same.
fn script(cluster: &Cluster, name: &str) -> Result<Command> {
    let mut command = Command::new(Path::new(env!("CARGO_MANIFEST_DIR")).join("peers").join(name));
    let members: Vec<String> = cluster.members.iter().map(|(name, ip)| format!("{name}={ip}")).collect();
    let hop = |Release { version, file, sum }: &Release| format!("{version}={file}={sum}");
    let releases: Vec<String> = cluster.releases.iter().skip(1).map(hop).collect();
    command
        .env("MEMBERS", members.join(" "))
        .env("RELEASES", releases.join(" "))
        .env("KEY", Lab::folder().join("operator"))
        .env("KNOWN_HOSTS", Lab::folder().join("known_hosts"))
        .env("ETCDCTL", etcdctl()?)
        .env("CACERT", cluster.pki("ca.crt"))
        .env("CERT", cluster.pki("clients/root.crt"))
        .env("CERT_KEY", cluster.root_key()?)
        .env("DATA_DIR", cluster.data_dir)
        .env("ENTRIES", std::env::current_exe()?)
        .env("ENTRIES_JOB", &cluster.folder)
        .env("WORK", &cluster.folder);
    fs::write(cluster.folder.join("members.json"), serde_json::to_vec(&cluster.members)?)?;
    Ok(command)
}

/// What etcdrun does before 3.7, for the script: adds entries to the log of the cluster of a folder.
pub fn entries(folder: &Path) -> Result<()> {
    let members: Vec<(String, String)> = serde_json::from_slice(&fs::read(folder.join("members.json"))?)?;
    Ok(writer::entries(&members, &credential(folder)?, 500, 50)?)
}

fn once(bench: &mut Bench, case: Case, who: Who, round: usize) -> Result<Run> {
    let label = match who {
        Who::Etcdrun => "etcdrun",
        Who::Reference => "script",
        Who::Naive => "naive",
    };
    let cluster = make(bench, case, &format!("rollout-{label}-{round}"))?;
    let credential = cluster.credential()?;
    let log = bench.folder.join("rollout.log");
    let ticks = Ticks::now()?;
    let writer = Writer::start(&cluster.members, &credential, case.manner());
    let took = match who {
        Who::Etcdrun => etcdrun_behind(bench, &cluster.folder, &["playbook", "upgrade.yaml"]),
        Who::Reference => measure_behind(&script(&cluster, "upgrade.sh")?, &log),
        Who::Naive => measure_behind(&script(&cluster, "naive.sh")?, &log),
    };
    let written = writer.stop()?;
    let (seconds, taken) = (took?.seconds, ticks.percent_since()?);
    let crashed = match who {
        Who::Naive => fs::read_to_string(&log)?.lines().filter(|line| line.starts_with("crashed ")).count(),
        Who::Etcdrun | Who::Reference => {
            etcdrun(bench, &cluster.folder, &["status"]).context("the cluster is healthy")?;
            0
        }
    };
    let found = writer::found(&cluster.members, &credential)?;
    let mut run = Run { seconds, lost: lost(&written, &found), crashed, written, quiet: None, taken };
    if who == Who::Etcdrun {
        let ticks = Ticks::now()?;
        run.quiet = Some(quiet(&cluster.members, &credential, case.manner(), run.written.lasted)?);
        run.taken = run.taken.max(ticks.percent_since()?);
    }
    tell(&run, label, round, &cluster.folder)?;
    if who == Who::Etcdrun && case.hedges && !is_much(run.taken) {
        is_enough(&run.written)?;
    }
    fs::remove_dir_all(&cluster.folder)?;
    Ok(run)
}

fn tell(run: &Run, label: &str, round: usize, folder: &Path) -> Result<()> {
    let Run { seconds, written, lost, crashed, taken, .. } = run;
    let (rate, gap, slowest, retries) =
        (rate(written), run.longest(), milliseconds(written.slowest), written.errors.len());
    let beside = run.longest_quiet().map_or_else(String::new, |quiet| {
        let ratio = gap / quiet;
        format!(" beside {quiet:.0} ms of the same client with nothing changed ({ratio:.2})")
    });
    eprintln!(
        "  round {round}: {label} {seconds:.1} s, {rate:.0} writes a second, longest gap {gap:.0} ms{beside}, slowest {slowest:.0} ms, {retries} retries, {lost} lost, {crashed} crashed, {taken:.0}% taken by other machines"
    );
    tell_gaps(written, folder)
}
