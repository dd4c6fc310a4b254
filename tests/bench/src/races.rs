//! Races against the peers: the same hosts, as many of them at once, the same work, verified.

use std::{fmt::Write as _, fs, os::unix::fs::PermissionsExt as _, path::Path, time::SystemTime};

use anyhow::{Context as _, Result, ensure};

use crate::{
    hosts::name,
    peers::Peer,
    process::Took,
    table::Row,
    works::{Bench, Contender, Go, TASKS, copies, ours, tasks, verify},
};

/// How much faster than a peer etcdrun must be; no peer may be ahead.
const AHEAD: f64 = 1.0;

/// Those that know nothing of what is on a host copy it again.
const COPIES_AGAIN: [Peer; 3] = [Peer::Asyncssh, Peer::ParallelSsh, Peer::ClusterShell];

/// A way to do a work by a peer, and how much faster etcdrun must be in each of its parts.
struct Rival<'a> {
    contender: Contender<'a>,
    bars: Vec<Option<f64>>,
}

impl<'a> Rival<'a> {
    fn new(peer: Peer, more: &str, bars: &[Option<f64>], go: Go<'a>) -> Self {
        let label = format!("{}{more}", peer.name());
        Self { contender: Contender { label, peer: Some(peer), go, once: false }, bars: bars.to_vec() }
    }
}

/// Has them all race, and holds etcdrun against each. There is a name for each part of the work.
fn race(bench: &mut Bench, names: &[String], etcdrun: Go<'_>, rivals: Vec<Rival<'_>>) -> Result<Vec<Row>> {
    let (contenders, bars): (Vec<_>, Vec<_>) = rivals.into_iter().map(|rival| (rival.contender, rival.bars)).unzip();
    let first = Contender { label: "etcdrun".to_owned(), peer: None, go: etcdrun, once: false };
    let contenders: Vec<_> = std::iter::once(first).chain(contenders).collect();
    let took = bench.race(bench.rounds, &contenders)?;
    let (ours, theirs) = took.split_first().context("etcdrun has run")?;
    let mut rows = Vec::new();
    for (part, name) in names.iter().enumerate() {
        for ((contender, times), bars) in contenders.iter().skip(1).zip(theirs).zip(&bars) {
            let reason = contender.peer.map(|peer| bench.peers.missing(peer)).transpose()?.flatten();
            rows.push(match reason {
                Some(reason) => Row::not_measured(name, &ours[part], &contender.label, &reason, bars[part]),
                None => Row::faster(name, &ours[part], &contender.label, &times[part], bars[part]),
            });
        }
    }
    Ok(rows)
}

/// Of each peer as it is, and of each with the commands joined by hand to one script.
pub fn commands(bench: &mut Bench) -> Result<Vec<Row>> {
    let hosts = bench.size;
    bench.inputs(TASKS)?;
    let by = |peer: Peer, fused: bool| -> Go<'_> {
        Box::new(move |bench| {
            let out = bench.fresh(hosts)?;
            let lines = copies(bench, &out, TASKS);
            let lines = if fused { vec![lines.join("\n")] } else { lines };
            let took = match peer {
                Peer::Ansible | Peer::Mitogen => bench.ansible(peer, hosts, &tasks("raw", &lines)),
                _ => bench.scripted(peer, hosts, "commands", lines.into()),
            }?;
            verify(&out, hosts, TASKS)?;
            Ok(vec![took.seconds])
        })
    };
    let bar = |peer| match peer {
        Peer::Asyncssh => Some(1.6),
        Peer::Ansible => Some(12.0),
        Peer::Pyinfra => None,
        Peer::ParallelSsh | Peer::ClusterShell | Peer::Mitogen => Some(AHEAD),
    };
    let plain = Peer::ALL.iter().map(|peer| Rival::new(*peer, "", &[bar(*peer)], by(*peer, false)));
    let fused = Peer::ALL.iter().map(|peer| Rival::new(*peer, ", fused by hand", &[None], by(*peer, true)));
    let names = [format!("{hosts} hosts × 10 commands")];
    let etcdrun = Box::new(move |bench: &mut Bench| Ok(vec![ours(bench, hosts, TASKS)?.seconds]));
    race(bench, &names, etcdrun, plain.chain(fused).collect())
}

/// Each command needs what the last one has said, so that nothing can be fused.
pub fn chain(bench: &mut Bench) -> Result<Vec<Row>> {
    let hosts = bench.size;
    let by = |peer: Peer| -> Go<'_> {
        Box::new(move |bench| {
            let out = bench.fresh(hosts)?;
            let took = match peer {
                Peer::Ansible | Peer::Mitogen => bench.ansible(peer, hosts, &chained("raw", &out)),
                _ => {
                    let lines: Vec<String> = (1..=TASKS).map(|n| link(n, &out)).collect();
                    bench.scripted(peer, hosts, "chain", lines.into())
                }
            }?;
            verify_sum(&out, hosts)?;
            Ok(vec![took.seconds])
        })
    };
    let etcdrun: Go<'_> = Box::new(move |bench| {
        let out = bench.fresh(hosts)?;
        let took = bench.playbook(hosts, bench.hosts.port, &chained("command", &out))?;
        verify_sum(&out, hosts)?;
        Ok(vec![took.seconds])
    });
    let bars = [
        (Peer::Asyncssh, AHEAD),
        (Peer::ParallelSsh, AHEAD),
        (Peer::ClusterShell, AHEAD),
        (Peer::Mitogen, AHEAD),
        (Peer::Ansible, 8.0),
    ];
    let rivals = bars.iter().map(|(peer, bar)| Rival::new(*peer, "", &[Some(*bar)], by(*peer)));
    let names = [format!("{hosts} hosts × 10 commands that need each other")];
    race(bench, &names, etcdrun, rivals.collect())
}

/// The n-th command of a chain. The last of them writes down what all of them have come to.
fn link(n: usize, out: &Path) -> String {
    match n {
        TASKS => format!("expr {{last}} + 1 >{}/{{host}}/sum", out.display()),
        _ => "expr {last} + 1".to_owned(),
    }
}

/// The same as tasks, for a tool that has Ansible's keywords.
fn chained(module: &str, out: &Path) -> String {
    let mut text = String::new();
    for n in 1..=TASKS {
        let last = if n == 1 { "0".to_owned() } else { format!("{{{{ r{}.stdout | trim }}}}", n - 1) };
        let module = if n == TASKS { module.replace("command", "shell") } else { module.to_owned() };
        let line = link(n, out).replace("{last}", &last).replace("{host}", "{{ inventory_hostname }}");
        let _ = writeln!(text, "    - {module}: {line}\n      register: r{n}");
    }
    text
}

fn verify_sum(out: &Path, hosts: usize) -> Result<()> {
    for host in (1..=hosts).map(name) {
        let said = fs::read_to_string(out.join(&host).join("sum")).with_context(|| host.clone())?;
        ensure!(said == format!("{TASKS}\n"), "{host} counted to {said:?}");
    }
    Ok(())
}

/// Files, and the same files again.
pub fn files(bench: &mut Bench) -> Result<Vec<Row>> {
    let hosts = bench.size;
    bench.inputs(TASKS)?;
    let by = |peer: Peer| -> Go<'_> {
        let go = move |bench: &mut Bench, out: &Path| match peer {
            Peer::Ansible | Peer::Mitogen => bench.ansible(peer, hosts, &copied(bench, out)),
            _ => {
                let from = bench.folder.join("in");
                let pair = |n: usize| (from.join(n.to_string()), format!("{}/{{host}}/{n}", out.display()));
                let pairs: Vec<_> = (1..=TASKS).map(pair).collect();
                bench.scripted(peer, hosts, "files", serde_json::to_value(pairs)?)
            }
        };
        Box::new(move |bench| twice(bench, hosts, !COPIES_AGAIN.contains(&peer), &go))
    };
    let folder = |peer: Peer| -> Go<'_> {
        let go = move |bench: &mut Bench, out: &Path| {
            // scp puts the folder into the one that is there; parallel-ssh wants the whole name.
            let tail = if peer == Peer::ParallelSsh { "/in" } else { "" };
            let pair = (bench.folder.join("in"), format!("{}/{{host}}{tail}", out.display()));
            bench.scripted(peer, hosts, "files", serde_json::to_value([pair])?)
        };
        Box::new(move |bench| {
            let out = bench.fresh(hosts)?;
            let first = go(bench, &out)?;
            bench.hosts.hang_up();
            let second = go(bench, &out)?;
            for host in (1..=hosts).map(name) {
                lift(&out.join(host))?;
            }
            verify_files(&out, hosts)?;
            Ok(vec![first.seconds, second.seconds])
        })
    };
    let etcdrun = move |bench: &mut Bench, out: &Path| bench.playbook(hosts, bench.hosts.port, &copied(bench, out));
    let mut rivals = vec![
        Rival::new(Peer::Asyncssh, "", &[None; 2], by(Peer::Asyncssh)),
        Rival::new(Peer::ParallelSsh, "", &[Some(AHEAD); 2], by(Peer::ParallelSsh)),
        Rival::new(Peer::ClusterShell, "", &[Some(AHEAD); 2], by(Peer::ClusterShell)),
        Rival::new(Peer::Pyinfra, "", &[Some(4.0), Some(5.0)], by(Peer::Pyinfra)),
        Rival::new(Peer::Mitogen, "", &[Some(AHEAD); 2], by(Peer::Mitogen)),
        Rival::new(Peer::Ansible, "", &[Some(60.0), None], by(Peer::Ansible)),
        Rival::new(Peer::ParallelSsh, ", one directory", &[None; 2], folder(Peer::ParallelSsh)),
        Rival::new(Peer::ClusterShell, ", one directory", &[None; 2], folder(Peer::ClusterShell)),
    ];
    for rival in &mut rivals {
        rival.contender.once = rival.contender.peer == Some(Peer::Ansible);
    }
    let names = [format!("{hosts} hosts × 10 files"), "the same again, unchanged".to_owned()];
    race(bench, &names, Box::new(move |bench| twice(bench, hosts, true, &etcdrun)), rivals)
}

/// A task for each file, for a tool that has Ansible's keywords.
fn copied(bench: &Bench, out: &Path) -> String {
    let (from, to) = (bench.folder.join("in"), out.display().to_string());
    let mut text = String::new();
    for n in 1..=TASKS {
        let (src, dest) = (from.join(n.to_string()), format!("{to}/{{{{ inventory_hostname }}}}/{n}"));
        let _ = writeln!(text, "    - copy: {{ src: {}, dest: \"{dest}\", mode: \"0644\" }}", src.display());
    }
    text
}

/// Once, and once more. Those that compare must leave alone what is there.
fn twice(
    bench: &mut Bench,
    hosts: usize,
    compares: bool,
    go: &dyn Fn(&mut Bench, &Path) -> Result<Took>,
) -> Result<Vec<f64>> {
    let out = bench.fresh(hosts)?;
    let first = go(bench, &out)?;
    bench.hosts.hang_up();
    let before = times(&out)?;
    let second = go(bench, &out)?;
    ensure!(!compares || times(&out)? == before, "the second run has written files again");
    verify_files(&out, hosts)?;
    Ok(vec![first.seconds, second.seconds])
}

/// What is in the folder `in` of it comes up to where the others have it.
fn lift(folder: &Path) -> Result<()> {
    for file in fs::read_dir(folder.join("in"))? {
        let file = file?;
        fs::rename(file.path(), folder.join(file.file_name()))?;
    }
    Ok(fs::remove_dir(folder.join("in"))?)
}

/// Every byte, and the mode.
fn verify_files(out: &Path, hosts: usize) -> Result<()> {
    for host in fs::read_dir(out)? {
        for file in fs::read_dir(host?.path())? {
            let file = file?;
            let mode = file.metadata()?.permissions().mode() & 0o7777;
            ensure!(mode == 0o644, "{} has mode {mode:o}", file.path().display());
        }
    }
    verify(out, hosts, TASKS)
}

/// When each file was written, all of them in order.
fn times(out: &Path) -> Result<Vec<SystemTime>> {
    let mut times = Vec::new();
    for host in fs::read_dir(out)? {
        for file in fs::read_dir(host?.path())? {
            times.push(file?.metadata()?.modified()?);
        }
    }
    times.sort();
    Ok(times)
}
