//! A dead member of a cluster of the lab is replaced while a client writes: what the client notices, whether anything of it is
//! lost, and how long it takes.

use std::{
    fs,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    cluster::{Cluster, IN_MEMORY, Wanted},
    seen::{Task, beside_quiet, is_enough, lost, milliseconds, quiet, rate, small, tasks, tell_gaps, tell_long},
    site::{etcdrun, etcdrun_behind, lab},
    table::{Row, percentile},
    works::Bench,
    writer::{self, Manner, Writer, Written},
};

/// Between two acknowledged writes, in milliseconds.
const GAP_LIMIT: f64 = 50.0;
/// In seconds; etcd's own catch-up comes on top.
const WALL_LIMIT: f64 = 5.0;
/// The tasks that wait for it: until a server says that it is ready, and until it has all that the others have. What a new member
/// sends to the leader before both have a connection to each other is lost, and etcd waits seven seconds before it sends it again.
const CATCHING_UP: [&str; 2] = ["/Start etcd", "/Promote the learner once it has caught up"];
/// etcd takes no new member before all others have been connected for so long. A cluster that was made this moment is not
/// what anybody replaces a member of.
const CONNECTED: Duration = Duration::from_secs(6);
/// Until those that are left have a leader.
const ELECTION: Duration = Duration::from_secs(30);

pub fn of_three(bench: &mut Bench) -> Result<Vec<Row>> {
    replace(bench, 3)
}

pub fn of_five(bench: &mut Bench) -> Result<Vec<Row>> {
    replace(bench, 5)
}

/// What came of one run.
struct Run {
    seconds: f64,
    catching_up: f64,
    written: Written,
    /// What the same client saw afterwards, for as long, when nothing was changed.
    quiet: Written,
    lost: usize,
}

fn replace(bench: &mut Bench, members: usize) -> Result<Vec<Row>> {
    let mut runs = Vec::new();
    for round in 1..=bench.rollouts {
        runs.push(once(bench, members, round)?);
    }
    let name = |what: &str| format!("replace: a failed member of {members}: {what}");
    let each = |of: fn(&Run) -> f64| -> Vec<f64> { runs.iter().map(of).collect() };
    let gaps = each(|run| milliseconds(run.written.longest));
    let quiet = each(|run| milliseconds(run.quiet.longest));
    let writes: usize = runs.iter().map(|run| run.written.acknowledged.len()).sum();
    let limits = each(|run| WALL_LIMIT + run.catching_up);
    let gap =
        Row::limit(&name("longest gap between writes, the worst run"), "ms", &[percentile(&gaps, 1.0)], GAP_LIMIT);
    Ok(vec![
        Row { times: runs.len(), ..gap },
        beside_quiet(&name("longest gap between writes, median"), &gaps, &quiet),
        Row::none(
            &name(&format!("lost of {writes} acknowledged writes")),
            runs.iter().map(|run| run.lost).sum(),
            runs.len(),
        ),
        Row::within(
            &name("wall clock"),
            "s",
            &each(|run| run.seconds),
            "5 s and etcd's start and catch-up",
            &limits,
            1.0,
        ),
        Row::figure(
            &name("of that, until the new one is ready, has caught up and votes"),
            "s",
            &each(|run| run.catching_up),
        ),
        Row::figure(&name("retries of the client in a run"), "", &each(|run| small(run.written.errors.len()))),
    ])
}

fn once(bench: &Bench, members: usize, round: usize) -> Result<Run> {
    let wanted = Wanted { members, minors: &["3.6"], auth: true, data_dir: IN_MEMORY, settings: "" };
    let cluster = Cluster::make(bench, &format!("replace-{round}"), wanted)?;
    let credential = cluster.credential()?;
    let (dead, left) = cluster.members.split_last().context("members")?;
    std::thread::sleep(CONNECTED);
    die(&cluster, &dead.0, left)?;
    let start = SystemTime::now();
    let writer = Writer::start(&cluster.members, &credential, Manner::default());
    let took = etcdrun_behind(bench, &cluster.folder, &["member", "replace", &dead.0, "--yes"]);
    let written = writer.stop()?;
    let seconds = took?.seconds;
    etcdrun(bench, &cluster.folder, &["status"]).context("the cluster is healthy")?;
    let all = cluster.asked(&cluster.members, "health")?;
    ensure!(all.len() == members, "{} of {members} members answer", all.len());
    let lost = lost(&written, &writer::found(&cluster.members, &credential)?);
    let quiet = quiet(&cluster.members, &credential, Manner::default(), written.lasted)?;
    let tasks = tasks(&cluster.folder)?;
    let caught_up: Vec<f64> =
        tasks.iter().filter(|task| CATCHING_UP.iter().any(|end| task.id.ends_with(end))).map(Task::seconds).collect();
    ensure!(caught_up.len() == CATCHING_UP.len(), "{} tasks that wait for the new member", caught_up.len());
    let catching_up: f64 = caught_up.iter().sum();
    let (beside, gap) = (milliseconds(quiet.longest), milliseconds(written.longest));
    let (rate, retries) = (rate(&written), written.errors.len());
    eprintln!(
        "  round {round}: {members} members, {seconds:.1} s, {catching_up:.1} of them catching up, {rate:.0} writes a second, longest gap {gap:.0} ms beside {beside:.0} ms of the same client with nothing changed, {retries} retries, {lost} lost"
    );
    tell_long(&tasks, start)?;
    tell_gaps(&written, &cluster.folder)?;
    is_enough(&written)?;
    fs::remove_dir_all(&cluster.folder)?;
    Ok(Run { seconds, catching_up, written, quiet, lost })
}

/// A member's etcd is killed, and its data is gone. What that alone costs is over when all others answer.
fn die(cluster: &Cluster, name: &str, left: &[(String, String)]) -> Result<()> {
    let script = format!("systemctl kill -s KILL etcd; systemctl stop etcd; rm -rf {}/*", cluster.data_dir);
    lab(&["enter", name, "--", "sh", "-c", &script])?;
    let start = Instant::now();
    while let Err(error) = cluster.asked(left, "health") {
        ensure!(start.elapsed() < ELECTION, "no leader: {error}");
    }
    Ok(())
}
