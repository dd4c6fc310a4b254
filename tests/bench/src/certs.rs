//! Certificates that are renewed, and an authority that another takes over from, while one client writes and another connects anew
//! all the time.

use std::{fs, process::Command};

use anyhow::{Context as _, Result, ensure};
use etcdrun::etcd::Credential;

use crate::{
    cluster::{Cluster, IN_MEMORY, Wanted},
    knock::{Knocked, Knocking},
    rollout::{GAP_LIMIT, WORST_LIMIT},
    seen::{beside_quiet, is_enough, lost, milliseconds, quiet, small, tell_gaps},
    site::{etcdrun, etcdrun_behind},
    table::{Row, percentile},
    taken::{Counted, Ticks, is_much, left_alone},
    works::Bench,
    writer::{self, Manner, Writer},
};

/// A renewal is over in less than a second, and what comes of it is seen later.
const RENEWALS: usize = 3;
const RENEW: &[&str] = &["certs", "renew", "--all"];
const ROTATE: &[&str] = &["certs", "rotate-ca", "prod", "--yes"];

/// What clients saw of one change.
struct Seen {
    seconds: f64,
    /// In milliseconds.
    longest: f64,
    /// The same when nothing is changed.
    longest_quiet: f64,
    writes: usize,
    lost: usize,
    handshakes: usize,
    refused: usize,
    /// What others took of the processors meanwhile, in percent.
    taken: f64,
}

/// One cluster for all rounds: each renewal and each rotation begins anew.
pub fn certs(bench: &mut Bench) -> Result<Vec<Row>> {
    let wanted = Wanted { members: 3, minors: &["3.6"], auth: true, data_dir: IN_MEMORY, settings: "" };
    let cluster = Cluster::make(bench, "certs", wanted)?;
    let renewals = left_alone(bench.rollouts, Seen::taken, |round| {
        let renewal = watched(bench, &cluster, &[RENEW; RENEWALS])?;
        renewal.tell("renewal", round);
        Ok(renewal)
    })?;
    let rotations = left_alone(bench.rollouts, Seen::taken, |round| {
        let phase = |words| watched(bench, &cluster, &[&[ROTATE, words].concat()]);
        let rotation = phase(&[])?.and(phase(&["--issue"])?).and(phase(&["--finish"])?);
        rotation.tell("rotation", round);
        Ok(rotation)
    })?;
    etcdrun(bench, &cluster.folder, &["status"]).context("the cluster is healthy")?;
    Ok([rows("certificates renewed", &renewals), rows("the CA rotated", &rotations)].concat())
}

/// What clients see that have what was exported before.
fn watched(bench: &Bench, cluster: &Cluster, changes: &[&[&str]]) -> Result<Seen> {
    let credential = exported(bench, cluster)?;
    cluster.clear()?;
    let ticks = Ticks::now()?;
    let writer = Writer::start(&cluster.members, &credential, Manner::default());
    let knocking = Knocking::start(&cluster.members, &credential);
    let took: Result<Vec<f64>> =
        changes.iter().map(|words| Ok(etcdrun_behind(bench, &cluster.folder, words)?.seconds)).collect();
    let (written, knocked) = (writer.stop()?, knocking.stop()?);
    let seconds = took?.iter().sum();
    let credential = exported(bench, cluster)?;
    let found = writer::found(&cluster.members, &credential)?;
    let knocking = Knocking::start(&cluster.members, &credential);
    let quiet = quiet(&cluster.members, &credential, Manner::default(), written.lasted);
    knocking.stop()?;
    let (quiet, taken) = (quiet?, ticks.percent_since()?);
    if !is_much(taken) {
        is_enough(&written)?;
    }
    tell_gaps(&written, &cluster.folder)?;
    let Knocked { handshakes, refused } = knocked;
    refused.iter().for_each(|error| eprintln!("    refused: {error}"));
    Ok(Seen {
        seconds,
        longest: milliseconds(written.longest),
        longest_quiet: milliseconds(quiet.longest),
        writes: written.acknowledged.len(),
        lost: lost(&written, &found),
        handshakes,
        refused: refused.len(),
        taken,
    })
}

/// What a client of root has, as it is exported now.
fn exported(bench: &Bench, cluster: &Cluster) -> Result<Credential> {
    let mut command = Command::new(&bench.etcdrun);
    command.args(["certs", "export", "root", "--to", "client", "-i", "inventory.yaml"]);
    let output = command.current_dir(&cluster.folder).env("HOME", &cluster.folder).output()?;
    ensure!(output.status.success(), "certs export: {}", String::from_utf8_lossy(&output.stderr));
    let pem = |name: &str| fs::read_to_string(cluster.folder.join("client").join(name));
    Ok(Credential {
        authority: pem("ca.crt")?,
        identity: Some((pem("root.crt")?, pem("root.key")?.into())),
        login: None,
    })
}

impl Seen {
    fn and(self, next: Self) -> Self {
        let seconds = self.seconds + next.seconds;
        Self {
            seconds,
            longest: self.longest.max(next.longest),
            longest_quiet: self.longest_quiet.max(next.longest_quiet),
            writes: self.writes + next.writes,
            lost: self.lost + next.lost,
            handshakes: self.handshakes + next.handshakes,
            refused: self.refused + next.refused,
            taken: (self.taken * self.seconds + next.taken * next.seconds) / seconds,
        }
    }

    fn taken(&self) -> f64 {
        self.taken
    }

    fn tell(&self, what: &str, round: usize) {
        let Self { seconds, longest, longest_quiet: quiet, writes, lost, handshakes, refused, taken } = self;
        eprintln!(
            "  round {round}: {what} {seconds:.1} s, longest gap {longest:.0} ms beside {quiet:.0} ms of the same client with nothing changed, {lost} of {writes} writes lost, {refused} of {handshakes} handshakes refused, {taken:.0}% taken by other machines"
        );
    }
}

fn rows(what: &str, Counted { runs, disturbed }: &Counted<Seen>) -> Vec<Row> {
    let name = |figure: &str| format!("rollout: 3 members, {what}: {figure}");
    let each = |of: fn(&Seen) -> f64| -> Vec<f64> { runs.iter().map(of).collect() };
    let sum = |of: fn(&Seen) -> usize| -> usize { runs.iter().map(of).sum() };
    let of = |figure, value, limit| Row { times: runs.len(), ..Row::limit(&name(figure), "ms", &[value], limit) };
    let (gaps, quiet) = (each(|run| run.longest), each(|run| run.longest_quiet));
    let none = |figure: String, count| Row::none(&name(&figure), count, runs.len());
    vec![
        of("longest gap between writes, p95 of the runs", percentile(&gaps, 0.95), GAP_LIMIT),
        of("longest gap, the worst run", percentile(&gaps, 1.0), WORST_LIMIT),
        beside_quiet(&name("longest gap between writes, median"), &gaps, &quiet),
        none(format!("lost of {} acknowledged writes", sum(|run| run.writes)), sum(|run| run.lost)),
        none(format!("refused of {} handshakes", sum(|run| run.handshakes)), sum(|run| run.refused)),
        Row::figure(&name("runs that other VMs disturbed"), "", &[small(*disturbed)]),
        Row::figure(&name("wall clock"), "s", &each(|run| run.seconds)),
    ]
}
