//! The works: what is measured, how it is verified, and which bars hold.

use std::{
    fmt::Write as _,
    fs,
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
    peers::Peers,
    process::{Took, measure},
    replace, rollout, site, stand_ins,
    table::{Row, median},
};

/// Tasks a host, where nothing else is said.
const TASKS: usize = 10;
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
    peers: Option<Peers>,
    runs: usize,
}

/// One way to do a work: who, and how.
type Contender<'a> = (&'static str, &'a dyn Fn(&mut Bench) -> Result<Took>);

/// What is measured: its name, and how.
type Work = (&'static str, fn(&mut Bench) -> Result<Vec<Row>>);

/// All works. A filter takes those whose name contains it.
pub const WORKS: &[Work] = &[
    ("version", version),
    ("commands", commands),
    ("limit", limit),
    ("chain", chain),
    ("files", files),
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
    ("rollout-naive", rollout::naive),
    ("rollout-certs", certs::certs),
];

impl Bench {
    pub fn new((folder, disks): (PathBuf, PathBuf), etcdrun: PathBuf, rounds: usize, rollouts: usize) -> Result<Self> {
        let hosts = Hosts::start(&disks)?;
        Ok(Self { folder, disks, etcdrun, rounds, rollouts, hosts, peers: None, runs: 0 })
    }

    fn peers(&mut self) -> Result<&Peers> {
        if self.peers.is_none() {
            self.peers = Some(Peers::install(&self.folder)?);
        }
        self.peers.as_ref().context("the peers are there")
    }

    /// Runs the contenders in turn, so that whatever else this machine does meets all of them.
    fn race(&mut self, rounds: usize, contenders: &[Contender<'_>]) -> Result<Vec<Vec<f64>>> {
        let mut took = vec![Vec::new(); contenders.len()];
        for round in 0..rounds {
            for (times, (who, go)) in took.iter_mut().zip(contenders) {
                let Took { seconds, .. } = go(self).with_context(|| (*who).to_owned())?;
                eprintln!("  round {}: {who} {seconds:.2} s", round + 1);
                times.push(seconds);
                self.hosts.hang_up();
            }
        }
        Ok(took)
    }

    /// An empty folder for what one run leaves on the hosts.
    fn fresh(&mut self, hosts: usize) -> Result<PathBuf> {
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

    fn playbook(&self, hosts: usize, port: u16, tasks: &str) -> Result<Took> {
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

    fn ansible(&mut self, hosts: usize, tasks: &str) -> Result<Took> {
        let python = self.peers()?.python();
        let inventory = self.write("ansible.ini", &self.hosts.ansible_inventory(hosts, &python))?;
        let playbook =
            self.write("ansible.yaml", &format!("- hosts: all\n  gather_facts: false\n  tasks:\n{tasks}"))?;
        self.peers()?.ansible(&inventory, &playbook)
    }

    /// A job for what reads JSON: hosts, and what to do on them.
    fn job(&self, hosts: usize, key: &str, what: serde_json::Value) -> Result<PathBuf> {
        let mut job = self.hosts.job(hosts);
        job[key] = what;
        self.write("job.json", &job.to_string())
    }

    fn bare(&mut self, hosts: usize, commands: &[String]) -> Result<Took> {
        let job = self.job(hosts, "commands", commands.into())?;
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

    fn inputs(&self, count: usize) -> Result<()> {
        let folder = self.folder.join("in");
        fs::create_dir_all(&folder)?;
        for n in 1..=count {
            fs::write(folder.join(n.to_string()), body(n))?;
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
fn verify(out: &Path, hosts: usize, files: usize) -> Result<()> {
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
fn copies(bench: &Bench, out: &Path, count: usize) -> Vec<String> {
    let (from, to) = (bench.folder.join("in"), out.display());
    (1..=count).map(|n| format!("cp {}/{n} {to}/{{host}}/{n}", from.display())).collect()
}

/// A task for each line, for a tool that has Ansible's keywords.
fn tasks(module: &str, lines: &[String]) -> String {
    let mut text = String::new();
    for line in lines {
        let line = line.replace("{host}", "{{ inventory_hostname }}").replace('\n', "\n        ");
        let _ = writeln!(text, "    - {module}: |-\n        {line}");
    }
    text
}

fn ours(bench: &mut Bench, hosts: usize, count: usize) -> Result<Took> {
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

fn commands(bench: &mut Bench) -> Result<Vec<Row>> {
    const HOSTS: usize = 50;
    bench.inputs(TASKS)?;
    bench.peers()?;
    let asyncssh = |bench: &mut Bench, fused: bool| {
        let out = bench.fresh(HOSTS)?;
        let job = bench.job(HOSTS, "commands", lines(bench, &out, fused).into())?;
        let took = bench.peers()?.asyncssh("commands", &job)?;
        verify(&out, HOSTS, TASKS)?;
        anyhow::Ok(took)
    };
    let ansible = |bench: &mut Bench, fused: bool| {
        let out = bench.fresh(HOSTS)?;
        let took = bench.ansible(HOSTS, &tasks("raw", &lines(bench, &out, fused)))?;
        verify(&out, HOSTS, TASKS)?;
        anyhow::Ok(took)
    };
    let pyinfra = |bench: &mut Bench, fused: bool| {
        let out = bench.fresh(HOSTS)?;
        let job = bench.job(HOSTS, "commands", lines(bench, &out, fused).into())?;
        let took = bench.peers()?.pyinfra("pyinfra_commands.py", &job)?;
        verify(&out, HOSTS, TASKS)?;
        anyhow::Ok(took)
    };
    let took = bench.race(
        bench.rounds,
        &[
            ("etcdrun", &|bench| ours(bench, HOSTS, TASKS)),
            ("asyncssh", &|bench| asyncssh(bench, false)),
            ("asyncssh, fused by hand", &|bench| asyncssh(bench, true)),
            ("Ansible", &|bench| ansible(bench, false)),
            ("Ansible, fused by hand", &|bench| ansible(bench, true)),
            ("pyinfra", &|bench| pyinfra(bench, false)),
            ("pyinfra, fused by hand", &|bench| pyinfra(bench, true)),
        ],
    )?;
    let name = "50 hosts × 10 commands";
    Ok(vec![
        Row::faster(name, &took[0], "asyncssh", &took[1], Some(1.6)),
        Row::faster(name, &took[0], "Ansible", &took[3], Some(12.0)),
        Row::faster(name, &took[0], "pyinfra", &took[5], None),
        Row::faster(name, &took[0], "asyncssh, fused by hand", &took[2], None),
        Row::faster(name, &took[0], "Ansible, fused by hand", &took[4], None),
        Row::faster(name, &took[0], "pyinfra, fused by hand", &took[6], None),
    ])
}

/// How close to the limit that is. Both are short, so more rounds cost little.
fn limit(bench: &mut Bench) -> Result<Vec<Row>> {
    const HOSTS: usize = 50;
    bench.inputs(TASKS)?;
    let bare = |bench: &mut Bench| {
        let out = bench.fresh(HOSTS)?;
        let took = bench.bare(HOSTS, &copies(bench, &out, TASKS))?;
        verify(&out, HOSTS, TASKS)?;
        Ok(took)
    };
    let peer = "a bare russh client, fused by hand";
    let took = bench.race(bench.rounds * 3, &[("etcdrun", &|bench| ours(bench, HOSTS, TASKS)), (peer, &bare)])?;
    Ok(vec![Row::within("50 hosts × 10 commands", "s", &took[0], peer, &took[1], 1.4)])
}

fn lines(bench: &Bench, out: &Path, fused: bool) -> Vec<String> {
    let lines = copies(bench, out, TASKS);
    if fused { vec![lines.join("\n")] } else { lines }
}

/// Each command needs what the last one has said, so that nothing can be fused.
fn chain(bench: &mut Bench) -> Result<Vec<Row>> {
    const HOSTS: usize = 50;
    bench.peers()?;
    let verify = |out: &Path| {
        for host in (1..=HOSTS).map(name) {
            let said = fs::read_to_string(out.join(&host).join("sum")).with_context(|| host.clone())?;
            ensure!(said == format!("{TASKS}\n"), "{host} counted to {said:?}");
        }
        anyhow::Ok(())
    };
    // The last of them writes down what all of them have come to.
    let link = |n: usize, out: &Path| match n {
        TASKS => format!("expr {{last}} + 1 >{}/{{host}}/sum", out.display()),
        _ => "expr {last} + 1".to_owned(),
    };
    let play = |module: &str, out: &Path| {
        let mut text = String::new();
        for n in 1..=TASKS {
            let last = if n == 1 { "0".to_owned() } else { format!("{{{{ r{}.stdout | trim }}}}", n - 1) };
            let module =
                if module == "raw" || n == TASKS { module.replace("command", "shell") } else { module.to_owned() };
            let line = link(n, out).replace("{last}", &last).replace("{host}", "{{ inventory_hostname }}");
            let _ = writeln!(text, "    - {module}: {line}\n      register: r{n}");
        }
        text
    };
    let took = bench.race(
        bench.rounds,
        &[
            ("etcdrun", &|bench| {
                let out = bench.fresh(HOSTS)?;
                let took = bench.playbook(HOSTS, bench.hosts.port, &play("command", &out))?;
                verify(&out)?;
                Ok(took)
            }),
            ("asyncssh", &|bench| {
                let out = bench.fresh(HOSTS)?;
                let lines: Vec<String> = (1..=TASKS).map(|n| link(n, &out)).collect();
                let job = bench.job(HOSTS, "commands", lines.into())?;
                let took = bench.peers()?.asyncssh("chain", &job)?;
                verify(&out)?;
                Ok(took)
            }),
            ("Ansible", &|bench| {
                let out = bench.fresh(HOSTS)?;
                let took = bench.ansible(HOSTS, &play("raw", &out))?;
                verify(&out)?;
                Ok(took)
            }),
        ],
    )?;
    let name = "50 hosts × 10 commands that need each other";
    Ok(vec![
        Row::faster(name, &took[0], "asyncssh", &took[1], Some(1.0)),
        Row::faster(name, &took[0], "Ansible", &took[2], Some(8.0)),
    ])
}

fn files(bench: &mut Bench) -> Result<Vec<Row>> {
    const HOSTS: usize = 50;
    bench.inputs(TASKS)?;
    bench.peers()?;
    let copy = |bench: &Bench, out: &Path| {
        let (from, to) = (bench.folder.join("in"), out.display().to_string());
        let mut text = String::new();
        for n in 1..=TASKS {
            let (src, dest) = (from.join(n.to_string()), format!("{to}/{{{{ inventory_hostname }}}}/{n}"));
            let _ = writeln!(text, "    - copy: {{ src: {}, dest: \"{dest}\", mode: \"0644\" }}", src.display());
        }
        text
    };
    let twice = |bench: &mut Bench, go: &dyn Fn(&mut Bench, &Path) -> Result<Took>| {
        let out = bench.fresh(HOSTS)?;
        let first = go(bench, &out)?;
        bench.hosts.hang_up();
        let before = times(&out)?;
        let second = go(bench, &out)?;
        ensure!(times(&out)? == before, "the second run has written files again");
        verify(&out, HOSTS, TASKS)?;
        bench.hosts.hang_up();
        anyhow::Ok((first.seconds, second.seconds))
    };
    let etcdrun = |bench: &mut Bench, out: &Path| bench.playbook(HOSTS, bench.hosts.port, &copy(bench, out));
    let pyinfra = |bench: &mut Bench, out: &Path| {
        let pair = |n: usize| (bench.folder.join("in").join(n.to_string()), format!("{}/{{host}}/{n}", out.display()));
        let pairs: Vec<_> = (1..=TASKS).map(pair).collect();
        let job = bench.job(HOSTS, "files", serde_json::to_value(pairs)?)?;
        bench.peers()?.pyinfra("pyinfra_files.py", &job)
    };
    let (mut ours, mut theirs) = ((Vec::new(), Vec::new()), (Vec::new(), Vec::new()));
    for round in 1..=bench.rounds {
        let (first, second) = twice(bench, &etcdrun).context("etcdrun")?;
        eprintln!("  round {round}: etcdrun {first:.2} s, again {second:.2} s");
        ours.0.push(first);
        ours.1.push(second);
        let (first, second) = twice(bench, &pyinfra).context("pyinfra")?;
        eprintln!("  round {round}: pyinfra {first:.2} s, again {second:.2} s");
        theirs.0.push(first);
        theirs.1.push(second);
    }
    // It takes minutes: once will do.
    let out = bench.fresh(HOSTS)?;
    let ansible = bench.ansible(HOSTS, &copy(bench, &out)).context("Ansible")?.seconds;
    eprintln!("  Ansible {ansible:.2} s");
    verify(&out, HOSTS, TASKS)?;
    bench.hosts.hang_up();
    let name = "50 hosts × 10 files";
    Ok(vec![
        Row::faster(name, &ours.0, "pyinfra", &theirs.0, Some(4.0)),
        Row::faster(name, &ours.0, "Ansible", &[ansible], Some(60.0)),
        Row::faster("the same again, unchanged", &ours.1, "pyinfra", &theirs.1, Some(5.0)),
    ])
}

/// When each file was written, all of them in order.
fn times(out: &Path) -> Result<Vec<std::time::SystemTime>> {
    let mut times = Vec::new();
    for host in fs::read_dir(out)? {
        for file in fs::read_dir(host?.path())? {
            times.push(file?.metadata()?.modified()?);
        }
    }
    times.sort();
    Ok(times)
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
