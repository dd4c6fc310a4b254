//! One host of the lab: a real systemd and a real sshd in a systemd-nspawn container with its own address. A hypervisor
//! is one with libvirt on it and a second interface, for the bridge of its guests.

use std::{
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpStream},
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::Pid;
use serde::{Deserialize, Serialize};

use crate::{
    Lab,
    cgroup::Cgroup,
    command::{command, run},
    files::{lock, remove_folder, replace_file},
    keeper, link,
    network::in_network_of,
    power, wait,
};

const START_LIMIT: Duration = Duration::from_secs(120);
/// A host that has not answered for so long may have a firewall that refuses this machine; to ask costs more.
const FIREWALL_SUSPECTED: Duration = Duration::from_secs(5);
/// Where the key goes that a host had before it was changed.
pub(crate) const FORMER_KEY: &str = "former-host-key";
pub(crate) const HOST_KEY_FILES: [&str; 2] = ["ssh_host_ed25519_key", "ssh_host_ed25519_key.pub"];
const KEEPER_NAME: &str = "host.sh";
/// The file that names the layer which a host has between the image and its own, if it is a copy of one that was kept.
pub(crate) const LAYER: &str = "layer";

/// Puts the script that holds a host into the lab's folder, once: a shell reads it while it runs.
pub(crate) fn write_keeper(folder: &Path) -> Result<()> {
    Ok(fs::write(folder.join(KEEPER_NAME), include_str!("host.sh"))?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// systemd and sshd, and a data disk at /var/lib/etcd.
    Fast,
    /// The same, with the packages that roles install.
    Services,
    /// libvirt and QEMU as well; its data disk is the pool `default`.
    Hypervisor,
}

impl Kind {
    fn disk_place(self) -> &'static str {
        match self {
            Self::Fast | Self::Services => "/var/lib/etcd",
            Self::Hypervisor => "/var/lib/libvirt/images",
        }
    }

    /// Files take what is written to them, so a large disk costs nothing until it is used.
    pub(crate) fn disk_size(self) -> &'static str {
        match self {
            Self::Fast | Self::Services => "512M",
            Self::Hypervisor => "20G",
        }
    }
}

/// What is known of a host before it runs, kept in its folder.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) kind: Kind,
    pub(crate) number: u8,
    pub(crate) zone: String,
    /// Made by a test, for itself.
    pub(crate) temporary: bool,
}

#[derive(Clone)]
pub struct Host {
    pub(crate) lab: Lab,
    pub(crate) name: String,
    pub(crate) record: Record,
}

impl Host {
    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn kind(&self) -> Kind {
        self.record.kind
    }

    pub fn zone(&self) -> &str {
        &self.record.zone
    }

    pub fn address(&self) -> Ipv4Addr {
        self.lab.subnet().address(self.record.number)
    }

    /// The folder of what makes this host: its disks, its console.
    pub(crate) fn folder(&self) -> PathBuf {
        self.lab.folder().join("hosts").join(&self.name)
    }

    pub(crate) fn cgroup(&self) -> Result<Cgroup> {
        Ok(self.lab.cgroup()?.child(&format!("host-{}", self.name)))
    }

    /// The ports on the switch: that of eth0, and for a hypervisor that of eth1.
    pub(crate) fn ports(&self) -> Vec<String> {
        let number = self.record.number;
        match self.record.kind {
            Kind::Fast | Kind::Services => vec![format!("p{number}")],
            Kind::Hypervisor => vec![format!("p{number}"), format!("q{number}")],
        }
    }

    /// Writes down what the host is and makes its disks; nothing runs yet.
    pub(crate) fn create(&self) -> Result<()> {
        self.create_with(self.record.kind.disk_size())
    }

    /// The same, with a data disk of this size.
    pub(crate) fn create_with(&self, disk_size: &str) -> Result<()> {
        let folder = self.folder();
        fs::create_dir_all(folder.join("work"))?;
        self.write_system()?;
        let disk = folder.join("disk.img");
        run(command("truncate", ["--size", disk_size]).arg(&disk))?;
        run(command("mkfs.ext4", ["-q", "-J", "size=4", "-E", "lazy_itable_init=1"]).arg(&disk))?;
        // Last, so that a half-made host is none.
        replace_file(&folder.join("host.json"), &serde_json::to_vec_pretty(&self.record)?)
    }

    /// What differs from the image: host key, who may log in, the names of the others.
    fn write_system(&self) -> Result<()> {
        let upper = self.folder().join("upper");
        make_folder(&upper.join("etc/ssh"), 0o755)?;
        make_folder(&upper.join("root/.ssh"), 0o700)?;
        self.make_host_key(&upper.join("etc/ssh"))?;
        let key = fs::read_to_string(self.lab.operator_key().with_extension("pub"))?;
        write_private(&upper.join("root/.ssh/authorized_keys"), &key)?;
        let names = format!("127.0.0.1 localhost\n{} {}\n", self.address(), self.name);
        fs::write(upper.join("etc/hosts"), names)?;
        fs::write(upper.join("etc/hostname"), format!("{}\n", self.name))?;
        Ok(())
    }

    pub(crate) fn make_host_key(&self, folder: &Path) -> Result<()> {
        let key = folder.join("ssh_host_ed25519_key");
        if key.exists() {
            fs::remove_file(&key)?;
        }
        run(command("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", &self.name, "-f"]).arg(&key)).map(drop)
    }

    /// The public key that the host was given when it was made.
    pub(crate) fn host_key(&self) -> Result<String> {
        let former = self.folder().join(FORMER_KEY).join(HOST_KEY_FILES[1]);
        let own = self.folder().join("upper/etc/ssh").join(HOST_KEY_FILES[1]);
        let path = if former.exists() { former } else { own };
        let line = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        let mut words = line.split(' ');
        match (words.next(), words.next()) {
            (Some(kind), Some(key)) => Ok(format!("{kind} {key}")),
            _ => bail!("{} is not a public key", path.display()),
        }
    }

    /// Switches the host on, as it was left, and returns when it can be logged into.
    pub fn start(&self) -> Result<()> {
        let _lock = lock(&self.folder())?;
        if self.is_running() {
            return Ok(());
        }
        self.cgroup()?.kill()?;
        let keeper = self.start_keeper()?;
        self.connect(keeper.pid)?;
        keeper.go()?;
        self.await_ready()
    }

    fn start_keeper(&self) -> Result<Held> {
        let script = self.lab.folder().join(KEEPER_NAME).display().to_string();
        let mut options = vec!["unshare", "--net", "--mount", "--propagation", "private", "sh", script.as_str()];
        let extra = self.nspawn_options();
        options.extend(extra.iter().map(String::as_str));
        let mut keeper = keeper::inside(&self.cgroup()?, options)?;
        let log = fs::File::options().create(true).append(true).open(self.folder().join("console"))?;
        keeper
            .env("FOLDER", self.folder())
            .env("LOWER", self.lower())
            .env("ADDRESS", self.address().to_string())
            .env("DISK", self.record.kind.disk_place())
            .env("MACHINE", format!("{}-{}", self.lab.name(), self.name))
            .env("NAME", &self.name)
            .stdin(Stdio::piped())
            .stderr(log);
        let (pid, stdin) = keeper::spawn_held(&mut keeper)
            .with_context(|| format!("{} did not start; its console says:\n{}", self.name, self.last_words()))?;
        fs::write(self.folder().join("keeper.pid"), pid.as_raw_pid().to_string())?;
        Ok(Held { pid, stdin })
    }

    fn lower(&self) -> String {
        let images = self.lab.images();
        let base = images.join("base").display().to_string();
        let image = match self.record.kind {
            Kind::Fast => base,
            Kind::Services => format!("{}:{base}", images.join("services").display()),
            Kind::Hypervisor => format!("{}:{base}", images.join("hypervisor").display()),
        };
        match fs::read_to_string(self.folder().join(LAYER)) {
            Ok(layer) => format!("{layer}:{image}"),
            Err(_) => image,
        }
    }

    fn nspawn_options(&self) -> Vec<String> {
        let mut options = Vec::new();
        if self.record.kind == Kind::Hypervisor {
            options.push("--bind=/dev/net/tun".to_owned());
            options.push(format!("--bind-ro={}:/srv/guest.qcow2", self.lab.images().join("guest.qcow2").display()));
            if Path::new("/dev/vhost-net").exists() {
                options.push("--bind=/dev/vhost-net".to_owned());
            }
            if self.lab.has_kvm() {
                options.push("--bind=/dev/kvm".to_owned());
            }
        }
        options
    }

    /// Plugs the host into the switch, with whatever is wrong with its link.
    fn connect(&self, keeper: Pid) -> Result<()> {
        let switch = self.lab.switch()?;
        for (port, interface) in self.ports().iter().zip(["eth0", "eth1"]) {
            switch.plug(port, keeper, interface, &self.mac(interface))?;
        }
        link::apply(self)
    }

    /// Always the same, so that a host that comes back is the same host to others.
    fn mac(&self, interface: &str) -> String {
        let second = u8::from(interface == "eth1");
        format!("02:86:{:02x}:00:{second:02x}:{:02x}", self.lab.subnet().0, self.record.number)
    }

    fn await_ready(&self) -> Result<()> {
        let says = || format!("the console of {} says:\n{}", self.name, self.last_words());
        let begun = Instant::now();
        wait::until(&format!("{} answers on port 22", self.name), START_LIMIT, || {
            if !self.cgroup()?.is_alive() {
                bail!("{} ended while it was starting", self.name);
            }
            Ok(self.is_ready(begun.elapsed())?.then_some(()))
        })
        .with_context(says)?;
        if self.record.kind == Kind::Hypervisor {
            wait::until(&format!("libvirt is ready on {}", self.name), START_LIMIT, || {
                let networks = self.run(&["virsh", "-q", "net-list", "--name"]);
                Ok(networks.is_ok_and(|names| names.contains("default")).then_some(()))
            })?;
        }
        Ok(())
    }

    /// Whether it can be logged into; over a link that carries nothing, or past a firewall of its own, whether it could be.
    fn is_ready(&self, waited: Duration) -> Result<bool> {
        let is_cut = link::get(self)?.carries_nothing();
        if !is_cut && self.answers() {
            return Ok(true);
        }
        let is_behind = is_cut || (waited > FIREWALL_SUSPECTED && (self.has_firewall() || self.lab.is_operator_cut()));
        Ok(is_behind && self.run(&["systemctl", "is-active", "ssh"]).is_ok())
    }

    /// Whether it has rules about packets. On a slow machine a host without any may take as long to answer.
    fn has_firewall(&self) -> bool {
        let rules = self.keeper().and_then(|keeper| run(&mut in_network_of(keeper, "nft", &["list", "ruleset"])));
        rules.is_ok_and(|rules| !rules.trim().is_empty())
    }

    /// The end of what the host printed on its console.
    fn last_words(&self) -> String {
        let console = fs::read(self.folder().join("console")).unwrap_or_default();
        let text = String::from_utf8_lossy(&console).into_owned();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(10)..].join("\n")
    }

    /// Whether an SSH server greets at its address; true of a host that can be reached and is not frozen.
    pub fn answers(&self) -> bool {
        let address = SocketAddr::from((self.address(), 22));
        let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(500)) else {
            return false;
        };
        let mut greeting = [0; 4];
        stream.set_read_timeout(Some(Duration::from_secs(1))).is_ok()
            && stream.read_exact(&mut greeting).is_ok()
            && &greeting == b"SSH-"
    }

    pub fn is_running(&self) -> bool {
        self.leader().is_ok()
    }

    /// The host's first process, as this machine sees it.
    pub fn leader(&self) -> Result<Pid> {
        let leader = self.cgroup()?.processes()?.into_iter().find(|&pid| is_first_in_its_namespace(pid));
        leader.ok_or_else(|| anyhow!("{} is not running; `lab start {}` starts it", self.name, self.name))
    }

    /// The process that holds the host's network.
    pub(crate) fn keeper(&self) -> Result<Pid> {
        let text = fs::read_to_string(self.folder().join("keeper.pid")).unwrap_or_default();
        let pid = text.trim().parse().ok().and_then(Pid::from_raw);
        let alive =
            pid.filter(|pid| self.cgroup().and_then(|group| group.processes()).is_ok_and(|all| all.contains(pid)));
        alive.ok_or_else(|| anyhow!("{} is not running", self.name))
    }

    /// A path of the host, as this machine sees it. Links are followed in the host first: followed from here they would
    /// lead to files of this machine.
    pub fn path(&self, path: &str) -> Result<PathBuf> {
        let leader = self.leader()?.as_raw_pid();
        let real = self.run(&["realpath", "--canonicalize-missing", path])?;
        Ok(PathBuf::from(format!("/proc/{leader}/root")).join(real.trim_end_matches('\n').trim_start_matches('/')))
    }

    /// A command in the host, without SSH.
    pub fn command(&self, words: &[&str]) -> Result<Command> {
        let leader = self.leader()?.as_raw_pid().to_string();
        let enter =
            ["--target", &leader, "--root", "--wd", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup", "--"];
        let mut command = command("nsenter", enter.iter().chain(words));
        command
            .env_clear()
            .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
            .env("HOME", "/root");
        Ok(command)
    }

    pub fn run(&self, words: &[&str]) -> Result<String> {
        run(&mut self.command(words)?)
    }

    /// Takes the power away, and returns when nothing of it has its disks any more. What it has written is there, since the kernel
    /// goes on. To shut it down takes longer: a leader whose peers go too looks for another leader for seconds.
    pub(crate) fn switch_off(&self) -> Result<()> {
        self.kill()?;
        self.await_off()
    }

    /// Nothing of it runs, and nothing has its data disk.
    fn await_off(&self) -> Result<()> {
        let disk = self.folder().join("disk.img");
        wait::until(&format!("{} is off", self.name), START_LIMIT, || {
            Ok((!self.cgroup()?.is_alive() && !is_attached(&disk)?).then_some(()))
        })
    }

    /// Takes the power away.
    pub fn kill(&self) -> Result<()> {
        let _lock = lock(&self.folder())?;
        self.cgroup()?.kill()?;
        let switch = self.lab.switch()?;
        self.ports().iter().try_for_each(|port| switch.unplug(port))
    }

    /// Takes the power away, and with it what was written to the data disk and was not synced. The rest of the host is on a disk of
    /// this machine, whose power is not lost.
    pub fn lose_power(&self) -> Result<()> {
        let place = self.record.kind.disk_place();
        // If it is not mounted, nothing was written to it, and this machine's filesystem is at its place.
        if self.has_own_disk(place)? {
            power::stop_writing(&self.path(place)?)?;
        }
        self.kill()?;
        // As long as the old mount has it, another one would read what is only in memory.
        self.await_off()
    }

    /// Takes the power away and forgets the host and its disks.
    pub fn erase(&self) -> Result<()> {
        self.kill()?;
        link::remove(self)?;
        self.cgroup()?.remove()?;
        // Its name and number may be taken again as soon as the folder is out of the way, and not before.
        let gone = self.folder().with_file_name(format!(".{}-{}", self.name, std::process::id()));
        fs::rename(self.folder(), &gone)?;
        remove_folder(&gone)
    }
}

/// A keeper that holds the namespaces and waits for the word to go on.
struct Held {
    pid: Pid,
    stdin: Option<std::process::ChildStdin>,
}

impl Held {
    fn go(self) -> Result<()> {
        let mut stdin = self.stdin.context("the keeper has no stdin")?;
        Ok(writeln!(stdin, "go")?)
    }
}

/// Whether a loop device has this file.
fn is_attached(disk: &Path) -> Result<bool> {
    for block in fs::read_dir("/sys/block")? {
        let file = fs::read_to_string(block?.path().join("loop/backing_file")).unwrap_or_default();
        if Path::new(file.trim_end()) == disk {
            return Ok(true);
        }
    }
    Ok(false)
}

fn is_first_in_its_namespace(pid: Pid) -> bool {
    let status = fs::read_to_string(format!("/proc/{}/status", pid.as_raw_pid())).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
    numbers.is_some_and(|numbers| {
        numbers.split_whitespace().count() == 2 && numbers.split_whitespace().last() == Some("1")
    })
}

fn make_folder(path: &Path, mode: u32) -> Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(mode)
        .create(path)
        .with_context(|| format!("could not create {}", path.display()))
}

fn write_private(path: &Path, text: &str) -> Result<()> {
    let mut file = fs::File::options().create(true).write(true).truncate(true).mode(0o600).open(path)?;
    Ok(file.write_all(text.as_bytes())?)
}
