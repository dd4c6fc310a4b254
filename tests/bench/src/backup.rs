//! Backups of a cluster of the lab: how fast its data gets here beside etcd's own tool, how much memory etcdrun needs for that,
//! and whether the same comes back.

use std::{collections::HashSet, fs};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::{
    cluster::{Cluster, ROOMY, Wanted},
    process::{Took, measure},
    site::etcdrun,
    table::Row,
    works::Bench,
    writer,
};

const MEBIBYTES: u64 = 2048;
const VALUE: usize = 1 << 20;
/// In MiB, whatever the size of the data.
const MEMORY_LIMIT: f64 = 200.0;
/// Of the speed of etcd's own tool.
const SPEED_BAR: f64 = 0.8;

/// Who only tries the bench takes less data.
fn mebibytes() -> Result<u64> {
    match std::env::var("ETCDRUN_BENCH_DATA_MIB") {
        Ok(text) => text.parse().context("ETCDRUN_BENCH_DATA_MIB"),
        Err(_) => Ok(MEBIBYTES),
    }
}

/// A follower's data to this machine's disk, by etcdrun and by etcdctl in turn; then back, on all members.
pub fn backup(bench: &mut Bench) -> Result<Vec<Row>> {
    let mebibytes = mebibytes()?;
    // Compaction would read and write while others are measured.
    let settings = ", quota: 8GiB, compaction: { mode: periodic, retention: 24h }";
    let wanted = Wanted { members: 3, minors: &["3.5"], auth: true, data_dir: ROOMY, settings };
    let cluster = Cluster::make(bench, "backup", wanted)?;
    writer::fill(&cluster.members, &cluster.credential()?, mebibytes, VALUE)?;
    let before = hashes(&cluster)?;
    ensure!(before.len() == 1, "members differ before the backup: {before:?}");
    let through = follower(&cluster)?;
    let (mut ours, mut theirs, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=bench.rounds {
        // Whoever is second finds more of it in memory.
        let we_begin = round % 2 == 0;
        let first = if we_begin { None } else { Some(by_etcdctl(bench, &cluster, &through, mebibytes)?) };
        let took = by_etcdrun(bench, &cluster, &through, mebibytes)?;
        let saved = first.map_or_else(|| by_etcdctl(bench, &cluster, &through, mebibytes), Ok)?;
        let (etcdrun, etcdctl) = (took.seconds, saved.seconds);
        eprintln!(
            "  round {round}: {mebibytes} MiB, etcdrun {etcdrun:.2} s, {:.0} MiB; etcdctl {etcdctl:.2} s",
            took.memory
        );
        ours.push(etcdrun);
        theirs.push(etcdctl);
        memory.push(took.memory);
    }
    // Revisions are part of the hash.
    let words = ["restore", "prod", "--from", "file:backups", "--force", "--yes", "--bump-revision", "0"];
    let restored = etcdrun(bench, &cluster.folder, &words)?;
    eprintln!("  restored in {:.2} s, {:.0} MiB", restored.seconds, restored.memory);
    etcdrun(bench, &cluster.folder, &["status"]).context("the cluster is healthy")?;
    let after = hashes(&cluster)?;
    fs::remove_dir_all(&cluster.folder)?;
    let name = format!("backup: {mebibytes} MiB of noise, compressed with zstd");
    let back = "restore: the same on three members";
    Ok(vec![
        Row::faster(&name, &ours, "etcdctl snapshot save", &theirs, Some(SPEED_BAR)),
        Row::limit(&format!("{name}: memory"), "MiB", &memory, MEMORY_LIMIT),
        Row::limit(&format!("{back}: memory"), "MiB", &[restored.memory], MEMORY_LIMIT),
        Row::none(
            &format!("{back}: hashes (HashKV) that differ from the one before"),
            after.difference(&before).count(),
            1,
        ),
        Row::figure(&format!("{back}: wall clock"), "s", &[restored.seconds]),
    ])
}

/// What members calculate of all that they have, with its revision: one, if they have the same.
fn hashes(cluster: &Cluster) -> Result<HashSet<(u64, u64)>> {
    let one = |it: &Value| {
        let hash = &it["HashKV"];
        let both = hash["hash"].as_u64().zip(hash["header"]["revision"].as_u64());
        both.with_context(|| format!("no hash: {it}"))
    };
    let all = cluster.asked(&cluster.members, "hashkv")?;
    ensure!(all.len() == cluster.members.len(), "{} of {} hashes", all.len(), cluster.members.len());
    all.iter().map(one).collect()
}

/// A member that does not lead.
fn follower(cluster: &Cluster) -> Result<(String, String)> {
    for member in &cluster.members {
        let said = cluster.asked(std::slice::from_ref(member), "status")?;
        let status = &said.first().context("a status")?["Status"];
        if status["leader"] != status["header"]["member_id"] {
            return Ok(member.clone());
        }
    }
    anyhow::bail!("all members lead")
}

fn by_etcdrun(bench: &Bench, cluster: &Cluster, (through, _): &(String, String), mebibytes: u64) -> Result<Took> {
    let folder = cluster.folder.join("backups");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    // What others have written does not have to get to the disk now.
    rustix::fs::sync();
    let words = ["backup", "prod", "--to", "file:backups", "--through", through];
    let took = etcdrun(bench, &cluster.folder, &words)?;
    let mut size = 0;
    for file in fs::read_dir(&folder)? {
        size = file?.metadata()?.len().max(size);
    }
    ensure!(size >> 20 >= mebibytes, "the backup has only {size} bytes: it is no noise");
    Ok(took)
}

fn by_etcdctl(bench: &Bench, cluster: &Cluster, through: &(String, String), mebibytes: u64) -> Result<Took> {
    let path = cluster.folder.join("etcdctl.db");
    rustix::fs::sync();
    let mut command = cluster.etcdctl(std::slice::from_ref(through))?;
    let took = measure(command.args(["snapshot", "save"]).arg(&path), &bench.folder.join("etcdctl.log"))?;
    let size = fs::metadata(&path)?.len();
    ensure!(size >> 20 >= mebibytes, "the snapshot has only {size} bytes");
    fs::remove_file(path)?;
    Ok(took)
}
