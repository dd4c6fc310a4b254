//! What the client has seen of a change, whether anything of it is lost, and which tasks ran meanwhile.

use std::{
    collections::HashSet,
    fs,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use anyhow::{Result, ensure};
use etcdrun::etcd::Credential;

use crate::{
    process::pause,
    table::Row,
    writer::{self, Manner, Writer, Written},
};

/// The client's pace in writes a second; a run with less is none.
const LEAST_RATE: f64 = 100.0;
/// In seconds: tasks that are told.
const LONG: f64 = 0.3;

pub fn milliseconds(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[expect(clippy::cast_precision_loss, reason = "counts are small")]
pub fn small(count: usize) -> f64 {
    count as f64
}

pub fn rate(written: &Written) -> f64 {
    small(written.acknowledged.len()) / written.lasted.as_secs_f64()
}

/// A client that hardly writes notices nothing.
pub fn is_enough(written: &Written) -> Result<()> {
    let rate = rate(written);
    ensure!(rate >= LEAST_RATE, "the client wrote only {rate:.0} times a second");
    Ok(())
}

/// What the same client sees of the same cluster for as long when nothing is changed. A gap is the cluster's, the machine's and the
/// client's together, and only one that is longer than these is from the change.
pub fn quiet(
    members: &[(String, String)],
    credential: &Credential,
    manner: Manner,
    length: Duration,
) -> Result<Written> {
    let writer = Writer::start(members, credential, manner);
    let waited = pause(length);
    let written = writer.stop()?;
    waited.map(|()| written)
}

/// The longest gap of a change beside that of the same client without it: medians, and their ratio.
pub fn beside_quiet(name: &str, gaps: &[f64], quiet: &[f64]) -> Row {
    Row::beside(name, "ms", gaps, "the same client right after, as long, with nothing changed", quiet)
}

pub fn lost(written: &Written, found: &HashSet<u64>) -> usize {
    written.acknowledged.iter().filter(|number| !found.contains(number)).count()
}

/// Long gaps, with the tasks that ran meanwhile, and attempts that failed.
pub fn tell_gaps(written: &Written, folder: &Path) -> Result<()> {
    let tasks = tasks(folder)?;
    for (end, gap) in &written.gaps {
        let end = milliseconds(end.duration_since(UNIX_EPOCH)?);
        let begin = end - milliseconds(*gap);
        let during = tasks.iter().filter(|task| task.begin <= end && task.end >= begin);
        let during: Vec<&str> = during.map(|task| task.id.as_str()).collect();
        let gap = milliseconds(*gap);
        eprintln!("    {gap:.0} ms until {:.3}: {}", end / 1e3, during.join("; "));
    }
    // Those that were only slow are many, and all alike.
    for error in written.errors.iter().filter(|error| !error.contains(writer::SLOW)) {
        eprintln!("    {}", error.chars().take(120).collect::<String>());
    }
    Ok(())
}

/// Tasks since then that took long: where the time goes.
pub fn tell_long(tasks: &[Task], since: SystemTime) -> Result<()> {
    let since = milliseconds(since.duration_since(UNIX_EPOCH)?);
    for task in tasks.iter().filter(|task| task.begin >= since && task.seconds() >= LONG) {
        eprintln!("    {:.1} s after {:.1}: {}", task.seconds(), (task.begin - since) / 1e3, task.id);
    }
    Ok(())
}

/// A task, and from when to when it ran, in milliseconds.
pub struct Task {
    pub id: String,
    begin: f64,
    end: f64,
}

impl Task {
    pub fn seconds(&self) -> f64 {
        (self.end - self.begin) / 1e3
    }
}

/// What etcdrun has done when, by its journals: so one sees what a gap came from.
pub fn tasks(folder: &Path) -> Result<Vec<Task>> {
    let mut tasks = Vec::new();
    let Ok(runs) = fs::read_dir(folder.join(".etcdrun/runs")) else { return Ok(tasks) };
    for run in runs {
        let journal = fs::read_to_string(run?.path().join("journal")).unwrap_or_default();
        for line in journal.lines().filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok()) {
            if let (Some("settled"), Some(id), Some(end), Some(seconds)) =
                (line["type"].as_str(), line["id"].as_str(), line["at"].as_f64(), line["seconds"].as_f64())
            {
                tasks.push(Task { id: id.to_owned(), begin: end - seconds * 1e3, end });
            }
        }
    }
    Ok(tasks)
}
