//! What can go wrong, on demand. Each fault is real: frames are lost, processes stop, disks are full.

use std::{
    fs,
    hash::{DefaultHasher, Hash, Hasher},
    net::IpAddr,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};

use crate::{
    Lab, certificate,
    command::{feed, run},
    host::{FORMER_KEY, HOST_KEY_FILES, Host},
    link::{self, LinkFault},
    network::{OPERATOR, in_network_of},
};

/// The file that fills a disk.
const FILLER: &str = ".lab-filler";
/// How the tables begin that cut the operator off; the number of a process follows.
const OPERATOR_CUT: &str = "bridge operator_cut_";
/// The table of a port that is shut.
const SHUT: &str = "lab_shut";
const DAY: Duration = Duration::from_secs(24 * 60 * 60);
/// So many bytes are turned over at a place.
const CORRUPT: u64 = 16;
const PAGE: u64 = 4096;
/// The number that the kernel gives to all of them.
const LOOP_DEVICES: u32 = 7;

impl Host {
    pub fn link_fault(&self) -> Result<LinkFault> {
        link::get(self)
    }

    /// Makes the link cut, slow or lossy, in place of what it was.
    pub fn set_link_fault(&self, fault: &LinkFault) -> Result<()> {
        link::set(self, fault)
    }

    pub fn cut(&self) -> Result<()> {
        self.set_link_fault(&LinkFault { cut: true, ..self.link_fault()? })
    }

    pub fn delay(&self, delay: Duration) -> Result<()> {
        self.set_link_fault(&LinkFault { delay, ..self.link_fault()? })
    }

    pub fn drop_frames(&self, percent: u8) -> Result<()> {
        self.set_link_fault(&LinkFault { loss: percent, ..self.link_fault()? })
    }

    /// Stops everything on the host where it stands, guests too. Connections stay open and nothing answers.
    pub fn freeze(&self) -> Result<()> {
        self.cgroup()?.freeze(true)
    }

    /// Lets everything on the host go on: itself, its guests, its sessions.
    pub fn thaw(&self) -> Result<()> {
        self.cgroup()?.freeze(false)?;
        for process in self.cgroup()?.processes()? {
            // It may have ended meanwhile.
            let _ = kill_process(process, Signal::CONT);
        }
        Ok(())
    }

    pub fn is_frozen(&self) -> bool {
        self.cgroup().is_ok_and(|cgroup| cgroup.is_frozen())
    }

    /// The SSH sessions of people who are logged in.
    pub fn sessions(&self) -> Result<Vec<Session>> {
        let processes = self.cgroup()?.processes()?;
        Ok(processes.into_iter().filter_map(Session::of).collect())
    }

    /// Writes to the disk that this folder is on until nothing more fits.
    pub fn fill(&self, folder: &str) -> Result<()> {
        self.check_own_disk(folder)?;
        let filler = self.filler(folder)?;
        // The large part at once, the rest byte by byte; both end with an error, which is the point.
        let script = r#"
            free=$(df --output=avail -k "$2" | tail -n 1)
            fallocate -l "${free}KiB" "$1" || true
            dd if=/dev/zero of="$1" bs=4096 oflag=append conv=notrunc 2>/dev/null || true
            dd if=/dev/zero of="$1" bs=1 oflag=append conv=notrunc 2>/dev/null || true
            sync "$1"
            ! dd if=/dev/zero of="$1" bs=4096 count=1 oflag=append conv=notrunc 2>/dev/null"#;
        run(&mut self.command(&["sh", "-c", script, "fill", &filler, folder])?).map(drop)
    }

    /// Makes room again on a disk that was filled.
    pub fn empty(&self, folder: &str) -> Result<()> {
        self.run(&["rm", "-f", &self.filler(folder)?]).map(drop)
    }

    /// At the root of the disk, so that any folder on it finds it.
    fn filler(&self, folder: &str) -> Result<String> {
        let place = self.run(&["df", "--output=target", folder])?;
        let place = place.lines().last().context("df names no place")?;
        Ok(format!("{}/{FILLER}", place.trim_end_matches('/')))
    }

    /// Only the data disk is the host's own; the rest is this machine's, which nobody wants full.
    fn check_own_disk(&self, folder: &str) -> Result<()> {
        if !self.has_own_disk(folder)? {
            bail!("{folder} of {} is not on its data disk but on this machine's disk or in its memory", self.name());
        }
        Ok(())
    }

    /// Whether a folder is on the host's data disk, and that is mounted.
    pub fn has_own_disk(&self, folder: &str) -> Result<bool> {
        let inside = self.path(folder)?;
        let folder = fs::metadata(&inside).with_context(|| format!("could not look at {}", inside.display()))?;
        Ok(libc::major(folder.dev()) == LOOP_DEVICES)
    }

    /// Turns over every bit of some bytes in the middle of a file.
    pub fn corrupt(&self, path: &str) -> Result<()> {
        self.corrupt_pages(path, 1)
    }

    /// The same in so many pages of the file, as far as it has them: the first ones behind the four that a database begins with, since
    /// the file of a small database is mostly room for more. In every other one it is the head of the page.
    pub fn corrupt_pages(&self, path: &str, pages: u64) -> Result<()> {
        let inside = self.path(path)?;
        let file = fs::File::options().read(true).write(true).open(&inside);
        let file = file.with_context(|| format!("could not open {path} of {}", self.name()))?;
        let length = file.metadata()?.len();
        if length == 0 {
            bail!("{path} of {} is empty, so there is nothing to corrupt", self.name());
        }
        for place in corrupt_places(length, pages) {
            let mut bytes = vec![0; length.min(CORRUPT) as usize];
            file.read_exact_at(&mut bytes, place)?;
            bytes.iter_mut().for_each(|byte| *byte = !*byte);
            file.write_all_at(&bytes, place)?;
        }
        Ok(file.sync_all()?)
    }

    /// Replaces a certificate by one that is alike in all but that it ended yesterday. The authority's key is a file of
    /// this machine.
    pub fn expire_certificate(&self, path: &str, ca_key: &Path) -> Result<()> {
        self.end_certificate(path, &fs::read_to_string(ca_key)?, SystemTime::now() - DAY)
    }

    /// Replaces a certificate by one that is alike in all but its end. The key is the authority's.
    pub fn end_certificate(&self, path: &str, ca_key: &str, end: SystemTime) -> Result<()> {
        let inside = self.path(path)?;
        let old = fs::read_to_string(&inside).with_context(|| format!("could not read {path} of {}", self.name()))?;
        let new = certificate::ending(&old, ca_key, end)?;
        Ok(fs::write(inside, new)?)
    }

    /// Lets no new connection to this port in. Those that there are go on.
    pub fn shut_port(&self, port: u16) -> Result<()> {
        let chain = format!("inet {SHUT} input");
        let rules = format!(
            "add table inet {SHUT}\n\
             add chain {chain} {{ type filter hook input priority 0; }}\n\
             add rule {chain} iifname != lo tcp dport {port} tcp flags & (syn | ack) == syn drop\n"
        );
        feed(&mut in_network_of(self.keeper()?, "nft", &["-f", "-"]), &rules).map(drop)
    }

    /// Takes that back.
    pub fn open_port(&self) -> Result<()> {
        run(&mut in_network_of(self.keeper()?, "nft", &["delete", "table", "inet", SHUT])).map(drop)
    }

    /// Gives the host another SSH host key than the one that the inventory knows.
    pub fn change_host_key(&self) -> Result<()> {
        let (folder, former) = (self.path("/etc/ssh")?, self.folder().join(FORMER_KEY));
        if !former.exists() {
            fs::create_dir(&former)?;
            for name in HOST_KEY_FILES {
                fs::copy(folder.join(name), former.join(name))?;
            }
        }
        self.make_host_key(&folder)?;
        self.restart_sshd()
    }

    /// Gives the host back the key it was made with.
    pub fn restore_host_key(&self) -> Result<()> {
        let (folder, former) = (self.path("/etc/ssh")?, self.folder().join(FORMER_KEY));
        if !former.exists() {
            return Ok(());
        }
        for name in HOST_KEY_FILES {
            fs::copy(former.join(name), folder.join(name))?;
        }
        fs::remove_dir_all(former)?;
        self.restart_sshd()
    }

    fn restart_sshd(&self) -> Result<()> {
        self.run(&["systemctl", "restart", "ssh"]).map(drop)
    }
}

/// One login over SSH.
pub struct Session {
    pid: Pid,
    pub user: String,
}

impl Session {
    /// OpenSSH calls the process of a session `sshd: user@pts/0` or `sshd: user@notty`.
    fn of(pid: Pid) -> Option<Self> {
        let title = fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_pid())).ok()?;
        let (user, _) = title.strip_prefix("sshd: ")?.split_once('@')?;
        Some(Self { pid, user: user.to_owned() })
    }

    /// The number of its process on this machine.
    pub fn id(&self) -> i32 {
        self.pid.as_raw_pid()
    }

    pub fn kill(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::KILL)?)
    }

    /// The session answers nothing more, and its connection stays open.
    pub fn freeze(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::STOP)?)
    }

    pub fn thaw(&self) -> Result<()> {
        Ok(kill_process(self.pid, Signal::CONT)?)
    }
}

/// A virtual machine on a hypervisor of the lab, by the name of its domain.
pub struct Guest {
    hypervisor: Host,
    domain: String,
}

impl Guest {
    pub fn new(hypervisor: &Host, domain: &str) -> Self {
        Self { hypervisor: hypervisor.clone(), domain: domain.to_owned() }
    }

    /// The QEMU process, as this machine sees it.
    fn process(&self) -> Result<Pid> {
        let mark = format!("guest={},", self.domain);
        let processes = self.hypervisor.cgroup()?.processes()?;
        let qemu = processes.into_iter().find(|pid| {
            let words = fs::read_to_string(format!("/proc/{}/cmdline", pid.as_raw_pid())).unwrap_or_default();
            words.split('\0').any(|word| word.starts_with(&mark))
        });
        qemu.ok_or_else(|| anyhow!("{} runs no guest called {}", self.hypervisor.name(), self.domain))
    }

    pub fn is_running(&self) -> bool {
        self.process().is_ok()
    }

    /// Takes the power away.
    pub fn kill(&self) -> Result<()> {
        Ok(kill_process(self.process()?, Signal::KILL)?)
    }

    pub fn freeze(&self) -> Result<()> {
        Ok(kill_process(self.process()?, Signal::STOP)?)
    }

    pub fn thaw(&self) -> Result<()> {
        Ok(kill_process(self.process()?, Signal::CONT)?)
    }

    /// Moves the clock of the guest by some seconds, through its guest agent.
    pub fn move_clock(&self, seconds: i64) -> Result<()> {
        let shown = self.hypervisor.run(&["virsh", "domtime", &self.domain])?;
        let now: i64 =
            shown.rsplit(' ').next().and_then(|word| word.trim().parse().ok()).context("virsh domtime told no time")?;
        let then = (now + seconds).to_string();
        self.hypervisor.run(&["virsh", "domtime", &self.domain, "--time", &then]).map(drop)
    }
}

impl Lab {
    /// Lets no frame pass between two sides, in either direction; both still reach everybody else.
    pub fn partition(&self, one: &[&Host], other: &[&Host]) -> Result<()> {
        self.drop_between(&table_of(one, other), &[(one, other), (other, one)])
    }

    /// Lets no frame pass from one side to the other; back they pass.
    pub fn mute(&self, one: &[&Host], other: &[&Host]) -> Result<()> {
        self.drop_between(&table_of(one, other), &[(one, other)])
    }

    /// Lets nothing of this machine pass to these addresses at these ports, instead of those that this process had cut off before. Other
    /// hosts still reach them. The rules are in the lab's network and go with it; those of a process that was killed go with the next call.
    pub fn cut_operator(&self, addresses: &[IpAddr], ports: &[u16]) -> Result<()> {
        let own = std::process::id().to_string();
        let is_others = |process: &str| process != own && Path::new("/proc").join(process).exists();
        let tables = run(&mut self.switch()?.inside("nft", &["list", "tables"]))?;
        let cut = tables.lines().filter_map(|line| line.strip_prefix("table ")?.strip_prefix(OPERATOR_CUT));
        let mut rules = String::new();
        for process in cut.filter(|process| !is_others(process)) {
            rules += &format!("delete table {OPERATOR_CUT}{process}\n");
        }
        if !addresses.is_empty() {
            let hook = "{ type filter hook forward priority 0; }";
            rules += &format!("add table {OPERATOR_CUT}{own}\nadd chain {OPERATOR_CUT}{own} forward {hook}\n");
        }
        let ports = ports.iter().map(u16::to_string).collect::<Vec<_>>().join(", ");
        for address in addresses {
            let to = if address.is_ipv4() { "ip daddr" } else { "ip6 daddr" };
            let from = format!("add rule {OPERATOR_CUT}{own} forward iifname {OPERATOR}");
            rules += &format!("{from} {to} {address} tcp dport {{ {ports} }} drop\n");
        }
        self.nft(&rules)
    }

    /// Whether this machine is cut off from any host by that.
    pub(crate) fn is_operator_cut(&self) -> bool {
        let tables = self.switch().and_then(|switch| run(&mut switch.inside("nft", &["list", "tables"])));
        tables.is_ok_and(|tables| tables.contains(OPERATOR_CUT))
    }

    fn drop_between(&self, table: &str, ways: &[(&[&Host], &[&Host])]) -> Result<()> {
        let mut rules = format!(
            "add table bridge {table}\n\
             add chain bridge {table} forward {{ type filter hook forward priority 0; }}\n"
        );
        for (from, to) in ways {
            let (from, to) = (port_set(from), port_set(to));
            rules += &format!("add rule bridge {table} forward iifname {from} oifname {to} drop\n");
        }
        self.nft(&rules)
    }

    /// Takes back one partition, or what mutes one side.
    pub fn unpartition(&self, one: &[&Host], other: &[&Host]) -> Result<()> {
        let table = table_of(one, other);
        self.nft(&format!("add table bridge {table}\ndelete table bridge {table}\n"))
    }

    fn nft(&self, rules: &str) -> Result<()> {
        feed(&mut self.switch()?.inside("nft", &["-f", "-"]), rules).map(drop)
    }

    /// Takes back everything that was done to the network, and thaws what was frozen. Hosts that were killed stay off.
    pub fn heal(&self) -> Result<()> {
        self.nft("flush ruleset\n")?;
        for host in self.hosts()? {
            if host.is_running() {
                host.thaw()?;
            }
            if host.link_fault()? != LinkFault::default() {
                host.set_link_fault(&LinkFault::default())?;
            }
        }
        Ok(())
    }

    /// The rules by which sides are kept apart, as nft lists them.
    pub fn partitions(&self) -> Result<String> {
        run(&mut self.switch()?.inside("nft", &["list", "ruleset"]))
    }
}

/// Where a file of this length is corrupted: in its middle, or in so many pages behind the first four.
fn corrupt_places(length: u64, pages: u64) -> Vec<u64> {
    if pages < 2 || length < 2 * PAGE {
        return vec![(length - length.min(CORRUPT)) / 2];
    }
    let pages = pages.min(length / PAGE);
    let first = (length / PAGE - pages).min(4);
    (0..pages).map(|page| (first + page) * PAGE + page % 2 * PAGE / 2).collect()
}

/// A partition has a table of its own, so that it can be taken back alone.
fn table_of(one: &[&Host], other: &[&Host]) -> String {
    let mut hasher = DefaultHasher::new();
    for side in [one, other] {
        side.iter().map(|host| host.name()).collect::<Vec<_>>().hash(&mut hasher);
    }
    format!("apart_{:x}", hasher.finish())
}

/// The ports of these hosts as a set for nft, under each name that they can have on the bridge.
fn port_set(hosts: &[&Host]) -> String {
    let ports = hosts.iter().flat_map(|host| host.ports());
    let names: Vec<String> =
        ports.flat_map(|port| [format!("\"{}\"", link::bridge_end(&port)), format!("\"{port}\"")]).collect();
    format!("{{ {} }}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_in_the_file() {
        assert_eq!((corrupt_places(4, 1), corrupt_places(4, 9)), (vec![0], vec![0]));
        assert_eq!(corrupt_places(100, 1), [42]);
        assert_eq!(corrupt_places(10 * PAGE, 4), [4 * PAGE, 5 * PAGE + 2048, 6 * PAGE, 7 * PAGE + 2048]);
        assert_eq!(corrupt_places(2 * PAGE + 5, 9), [0, PAGE + 2048]);
    }
}
