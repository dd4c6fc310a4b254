//! The works: what is measured, how it is verified, and which bars hold.

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};

use crate::{
    backup, certs,
    delay::Proxy,
    graphs::{self, Figures},
    guests,
    hosts::{Hosts, LOCKS, name},
    peers::{AT_ONCE, Peer, Peers},
    process::{Took, measure},
    races, replace, rollout, site, stand_ins,
    table::{Row, median},
    taken::Ticks,
};

/// Tasks a host, where nothing else is said.
pub const TASKS: usize = 10;
/// Of each file that is copied.
const FILE_SIZE: usize = 4096;
const ROUND_TRIP: Duration = Duration::from_millis(20);
/// Key exchange (2), service, authentication (2, since a key is offered before it signs), channel; then the lock, the
/// tasks and the release of the lock, each of which must have ended before the next begins.
const ROUND_TRIPS: f64 = 9.0;

pub struct Bench {
    /// The operator's.
    pub folder: PathBuf,
    /// What the hosts have on their disks.
    disks: PathBuf,
    pub etcdrun: PathBuf,
    pub rounds: usize,
    /// How often each rollout is measured.
    pub rollouts: usize,
    pub hosts: Hosts,
    pub peers: Peers,
    runs: usize,
    /// How many hosts the races against peers have.
    pub size: usize,
}

/// Folders: what the operator has, what the hosts have on their disks, and where peers are installed.
pub struct Places {
    pub folder: PathBuf,
    pub disks: PathBuf,
    pub peers: PathBuf,
}

/// How often things are measured, and on how many hosts.
#[derive(Clone, Copy)]
pub struct Often {
    pub rounds: usize,
    pub rollouts: usize,
    pub size: usize,
}

/// How a work is done, in one or several parts: the seconds of each.
pub type Go<'a> = Box<dyn Fn(&mut Bench) -> Result<Vec<f64>> + 'a>;

/// One way to do a work.
pub struct Contender<'a> {
    pub label: String,
    /// What must be installed for it.
    pub peer: Option<Peer>,
    pub go: Go<'a>,
    /// It takes minutes: once will do.
    pub once: bool,
}

/// What is measured: its name, and how.
type Work = (&'static str, fn(&mut Bench) -> Result<Vec<Row>>);

/// All works. A filter takes those whose name contains it.
pub const WORKS: &[Work] = &[
    ("version", version),
    ("commands", races::commands),
    ("limit", limit),
    ("chain", races::chain),
    ("files", races::files),
    ("many", many),
    ("delay", delay),
    ("compile", compile),
    ("schedule", schedule),
    ("site-five", site::five),
    ("site-image", site::image),
    ("site-guests", stand_ins::converged),
    ("guests", guests::guests),
    ("backup", backup::backup),
    ("replace-three", replace::of_three),
    ("replace-five", replace::of_five),
    ("rollout-plain", rollout::plain),
    ("rollout-auth", rollout::auth),
    ("rollout-five-plain", rollout::five_plain),
    ("rollout-five-auth", rollout::five_auth),
    ("rollout-full", rollout::full),
    ("rollout-far", rollout::far),
    ("rollout-unhedged", rollout::unhedged),
    ("rollout-naive", rollout::naive),
    ("rollout-certs", certs::certs),
];

impl Bench {
    pub fn new(Places { folder, disks, peers }: Places, etcdrun: PathBuf, often: Often) -> Result<Self> {
        let (hosts, peers) = (Hosts::start(&disks)?, Peers::new(&peers, &folder)?);
        let Often { rounds, rollouts, size } = often;
        Ok(Self { folder, disks, etcdrun, rounds, rollouts, hosts, peers, runs: 0, size })
    }

    /// Runs the contenders in turn, so that whatever else this machine does meets all of them. The seconds of each, of each of its
    /// parts, of each round; none of those that cannot be had.
    pub fn race(&mut self, rounds: usize, contenders: &[Contender<'_>]) -> Result<Vec<Vec<Vec<f64>>>> {
        let mut took = vec![Vec::new(); contenders.len()];
        for contender in contenders {
            if let Some(peer) = contender.peer {
                self.peers.missing(peer)?;
            }
        }
        for round in 0..rounds {
            for (parts, Contender { label, peer, go, once }) in took.iter_mut().zip(contenders) {
                let cannot = peer.is_some_and(|peer| !matches!(self.peers.missing(peer), Ok(None)));
                if cannot || (*once && round > 0) {
                    continue;
                }
                let ticks = Ticks::now()?;
                let seconds = go(self).with_context(|| label.clone())?;
                self.hosts.hang_up();
                let said: Vec<String> = seconds.iter().map(|seconds| format!("{seconds:.2} s")).collect();
                let taken = ticks.percent_since()?;
                eprintln!("  round {}: {label} {}, {taken:.0}% taken by other machines", round + 1, said.join(", "));
                parts.resize(seconds.len(), Vec::new());
                parts.iter_mut().zip(seconds).for_each(|(part, seconds): (&mut Vec<f64>, f64)| part.push(seconds));
            }
        }
        Ok(took)
    }

    /// An empty folder for what one run leaves on the hosts.
    pub fn fresh(&mut self, hosts: usize) -> Result<PathBuf> {
        self.runs += 1;
        let out = self.disks.join(format!("out-{}", self.runs));
        for n in 1..=hosts {
            fs::create_dir_all(out.join(name(n)))?;
        }
        Ok(out)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.folder.join(name);
        fs::write(&path, text)?;
        Ok(path)
    }

    pub fn playbook(&self, hosts: usize, port: u16, tasks: &str) -> Result<Took> {
        let inventory = self.write("inventory.yaml", &self.hosts.inventory(hosts, port))?;
        let playbook = self.write("play.yaml", &format!("- hosts: all\n  tasks:\n{tasks}"))?;
        let config = self.write("ssh_config", "IdentityAgent none\nIdentityFile none\n")?;
        // In the home of each host, where its sessions stand.
        self.write("etcdrun.toml", &format!("lock_dir = \"/proc/self/cwd/{LOCKS}\"\n"))?;
        let mut command = Command::new(&self.etcdrun);
        command.arg("playbook").arg("-i").arg(inventory).arg(playbook).arg("--ssh-config").arg(config);
        command.arg("--state-dir").arg(self.folder.join("state")).current_dir(&self.folder);
        measure(&mut command, &self.folder.join("etcdrun.log"))
    }

    pub fn ansible(&self, peer: Peer, hosts: usize, tasks: &str) -> Result<Took> {
        let python = self.peers.python(peer)?;
        let inventory = self.write("ansible.ini", &self.hosts.ansible_inventory(hosts, &python))?;
        let playbook =
            self.write("ansible.yaml", &format!("- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}"))?;
        self.peers.ansible(peer, &inventory, &playbook)
    }

    /// A peer that we have a script for, which reads a job: hosts, and what to do on them.
    pub fn scripted(&self, peer: Peer, hosts: usize, mode: &str, what: serde_json::Value) -> Result<Took> {
        let key = if mode == "files" { "files" } else { "commands" };
        let sockets = self.peers.fresh_sockets()?;
        let mut job = self.hosts.job(hosts);
        job[key] = what;
        job["at_once"] = AT_ONCE.into();
        job["sockets"] = sockets.path().display().to_string().into();
        let job = self.write("job.json", &job.to_string())?;
        match peer {
            Peer::Asyncssh => self.peers.script(peer, "asyncssh_run.py", mode, &job),
            Peer::ParallelSsh => self.peers.script(peer, "parallel_ssh_run.py", mode, &job),
            Peer::ClusterShell => self.peers.script(peer, "clustershell_run.py", mode, &job),
            Peer::Pyinfra => self.peers.pyinfra(&format!("pyinfra_{mode}.py"), &job),
            Peer::Ansible | Peer::Mitogen => bail!("{} takes a playbook", peer.name()),
        }
    }

    fn bare(&mut self, hosts: usize, commands: &[String]) -> Result<Took> {
        let mut job = self.hosts.job(hosts);
        job["commands"] = commands.into();
        let job = self.write("job.json", &job.to_string())?;
        let mut command = Command::new(std::env::current_exe()?);
        measure(command.arg("bare").arg(job), &self.folder.join("bare.log"))
    }

    /// Runs a part of this program by itself, so that its memory is its own.
    fn alone(&self, part: &str, folder: &Path) -> Result<Figures> {
        let log = self.folder.join("alone.log");
        measure(Command::new(std::env::current_exe()?).arg(part).arg(folder), &log)?;
        let said = fs::read_to_string(log)?;
        serde_json::from_str(said.trim()).with_context(|| said)
    }

    pub fn inputs(&self, count: usize) -> Result<()> {
        let folder = self.folder.join("in");
        fs::create_dir_all(&folder)?;
        for n in 1..=count {
            let path = folder.join(n.to_string());
            fs::write(&path, body(n))?;
            // Some peers give a copy the mode of what it is a copy of.
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644))?;
        }
        Ok(())
    }
}

/// The bytes of the n-th file, different in each.
fn body(n: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(n as u64 + 1);
    let mut text = String::new();
    while text.len() < FILE_SIZE {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let _ = writeln!(text, "{state:016x}");
    }
    text.truncate(FILE_SIZE);
    text.into_bytes()
}

/// Every host must have every file, with every byte, and nothing else.
pub fn verify(out: &Path, hosts: usize, files: usize) -> Result<()> {
    for host in (1..=hosts).map(name) {
        let folder = out.join(&host);
        let found = fs::read_dir(&folder)?.count();
        ensure!(found == files, "{host} has {found} files, not {files}");
        for n in 1..=files {
            let is = fs::read(folder.join(n.to_string())).with_context(|| format!("{host}: file {n}"))?;
            ensure!(is == body(n), "{host}: file {n} is not what was sent");
        }
    }
    fs::remove_dir_all(out)?;
    Ok(())
}

/// What a command does: it copies a file. `{host}` stands for the host.
pub fn copies(bench: &Bench, out: &Path, count: usize) -> Vec<String> {
    let (from, to) = (bench.folder.join("in"), out.display());
    (1..=count).map(|n| format!("cp {}/{n} {to}/{{host}}/{n}", from.display())).collect()
}

/// A task for each line, for a tool that has Ansible's keywords.
pub fn tasks(module: &str, lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines {
        let line = line.replace("{host}", "{{ inventory_hostname }}").replace('\n', "\n        ");
        let _ = writeln!(text, "    - {module}: |-\n        {line}");
    }
    text
}

pub fn ours(bench: &mut Bench, hosts: usize, count: usize) -> Result<Took> {
    let out = bench.fresh(hosts)?;
    let took = bench.playbook(hosts, bench.hosts.port, &tasks("command", &copies(bench, &out, count)))?;
    verify(&out, hosts, count)?;
    Ok(took)
}

fn version(bench: &mut Bench) -> Result<Vec<Row>> {
    let mut took = Vec::new();
    for _ in 0..20 {
        let log = bench.folder.join("version.log");
        took.push(measure(Command::new(&bench.etcdrun).arg("--version"), &log)?.seconds * 1e3);
    }
    Ok(vec![Row::limit("`etcdrun --version`", "ms", &took, 10.0)])
}

/// How close to the limit that is. Both are short, so more rounds cost little.
fn limit(bench: &mut Bench) -> Result<Vec<Row>> {
    let hosts = bench.size;
    bench.inputs(TASKS)?;
    let bare = |bench: &mut Bench| {
        let out = bench.fresh(hosts)?;
        let took = bench.bare(hosts, &copies(bench, &out, TASKS))?;
        verify(&out, hosts, TASKS)?;
        Ok(vec![took.seconds])
    };
    let etcdrun = move |bench: &mut Bench| Ok(vec![ours(bench, hosts, TASKS)?.seconds]);
    let peer = "a bare russh client, fused by hand";
    let contender = |label: &str, go| Contender { label: label.to_owned(), peer: None, go, once: false };
    let contenders = [contender("etcdrun", Box::new(etcdrun)), contender(peer, Box::new(bare))];
    let took = bench.race(bench.rounds * 3, &contenders)?;
    let name = format!("{hosts} hosts × 10 commands");
    Ok(vec![Row::within(&name, "s", &took[0][0], peer, &took[1][0], 1.4)])
}

fn many(bench: &mut Bench) -> Result<Vec<Row>> {
    bench.inputs(TASKS)?;
    let (mut few, mut many, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        few.push(ours(bench, 50, TASKS)?.seconds);
        bench.hosts.hang_up();
        let took = ours(bench, 500, TASKS)?;
        bench.hosts.hang_up();
        eprintln!("  500 hosts: {:.2} s, {:.0} MiB; 50 hosts: {:.2} s", took.seconds, took.memory, median(&few));
        many.push(took.seconds);
        memory.push(took.memory);
    }
    Ok(vec![
        Row::within("500 hosts × 10 commands", "s", &many, "itself, 50 hosts", &few, 11.0),
        Row::limit("its memory", "MiB", &memory, 150.0),
    ])
}

fn delay(bench: &mut Bench) -> Result<Vec<Row>> {
    const COUNT: usize = 20;
    bench.inputs(COUNT)?;
    let proxy = Proxy::start(bench.hosts.port, ROUND_TRIP)?;
    fs::write(bench.hosts.known_hosts(proxy.port), bench.hosts.known_hosts_text(proxy.port)?)?;
    let go = |bench: &mut Bench, hosts: usize, port: u16| {
        let out = bench.fresh(hosts)?;
        let took = bench.playbook(hosts, port, &tasks("command", &copies(bench, &out, COUNT)))?;
        verify(&out, hosts, COUNT)?;
        bench.hosts.hang_up();
        anyhow::Ok(took.seconds)
    };
    let mut rows = Vec::new();
    for hosts in [1, COUNT] {
        let (mut near, mut far) = (Vec::new(), Vec::new());
        for _ in 0..bench.rounds.max(5) {
            near.push(go(bench, hosts, bench.hosts.port)?);
            far.push(go(bench, hosts, proxy.port)?);
        }
        eprintln!("  {hosts} hosts: {:.3} s, {:.3} s without the delay", median(&far), median(&near));
        let added = (median(&far) - median(&near)) / ROUND_TRIP.as_secs_f64();
        let name = format!("{hosts} hosts × {COUNT} tasks, 20 ms away: round trips");
        let row = Row::within(&name, "", &[added], "unavoidable", &[ROUND_TRIPS], 1.5);
        rows.push(Row { times: far.len(), peer_times: 0, ..row });
    }
    Ok(rows)
}

fn compile(bench: &mut Bench) -> Result<Vec<Row>> {
    let (small, large) = (bench.folder.join("fleet"), bench.folder.join("fleet10"));
    graphs::write(&small, 1_000)?;
    graphs::write(&large, 10_000)?;
    let (mut seconds, mut memory, mut ten) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let one = bench.alone("compiled", &small)?;
        check(&one, 1_000)?;
        seconds.push(one.seconds);
        memory.push(one.memory);
        let many = bench.alone("compiled", &large)?;
        check(&many, 10_000)?;
        ten.push(many.seconds);
        eprintln!(
            "  {:.2} s, {:.0} MiB; ten times that {:.2} s, {:.0} MiB",
            one.seconds, one.memory, many.seconds, many.memory
        );
    }
    Ok(vec![
        Row::limit("load and compile 200,000 nodes", "s", &seconds, 3.0),
        Row::limit("its memory", "MiB", &memory, 1536.0),
        Row::within("load and compile 2,000,000 nodes", "s", &ten, "itself, 200,000", &seconds, 12.0),
    ])
}

fn check(figures: &Figures, hypervisors: usize) -> Result<()> {
    let wanted = hypervisors * 5 * graphs::TASKS;
    if figures.nodes != wanted {
        bail!("the graph has {} nodes, not {wanted}", figures.nodes);
    }
    Ok(())
}

fn schedule(bench: &mut Bench) -> Result<Vec<Row>> {
    let folder = bench.folder.join("fleet");
    graphs::write(&folder, 1_000)?;
    let (mut plain, mut journaled) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        for (part, times) in [("scheduled", &mut plain), ("journaled", &mut journaled)] {
            let figures = bench.alone(part, &folder)?;
            check(&figures, 1_000)?;
            #[expect(clippy::cast_precision_loss, reason = "node counts are small")]
            let each = figures.seconds * 1e6 / figures.nodes as f64;
            eprintln!("  {part}: {each:.1} µs a node, {:.0} MiB", figures.memory);
            times.push(each);
        }
    }
    Ok(vec![
        Row::limit("schedule 200,000 nodes, each", "µs", &plain, 10.0),
        Row::limit("the same with the journal, each", "µs", &journaled, 30.0),
    ])
}
