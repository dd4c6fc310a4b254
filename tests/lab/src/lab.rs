//! The lab as a whole: up, open, down. What it is made of lies in one folder (/var/lib/etcdrun-lab/NAME) and one cgroup;
//! images are cached elsewhere, so that taking a lab down does not mean building them again.

use std::{
    fs,
    path::{Path, PathBuf},
    thread,
};

use anyhow::{Context, Result, anyhow, bail};
use serde::{Deserialize, Serialize};

use crate::{
    cgroup::Cgroup,
    command::{command, run},
    files::{lock, remove_folder, replace_file},
    host::{self, Host, Kind, Record},
    images, inventory, limits,
    network::{self, Subnet, Switch},
    requirements,
};

/// The name of the lab if none is given; tests have one of their own.
pub const DEFAULT_NAME: &str = "etcdrun-lab";

const ALL_LABS: &str = "/var/lib/etcdrun-lab";
/// The file that keeps a limit of the machine as it was before there were labs.
const FORMER_LIMIT: &str = "former-limit";
const ZONES: [&str; 3] = ["zone-a", "zone-b", "zone-c"];
/// The first addresses of hypervisors, of hosts, of hosts with services, and of what tests start for themselves. The rest, from
/// .200 on, is left to guests.
const HYPERVISORS_FROM: u8 = 11;
const HOSTS_FROM: u8 = 31;
const SERVICES_FROM: u8 = 81;
const TEMPORARY_FROM: u8 = 101;
const GUESTS_FROM: u8 = 200;

/// How many of what.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    pub hypervisors: u8,
    pub hosts: u8,
    pub services: u8,
}

#[derive(Clone)]
pub struct Lab {
    name: String,
    folder: PathBuf,
    settings: Settings,
}

/// What a lab was brought up with.
#[derive(Clone, Serialize, Deserialize)]
struct Settings {
    subnet: u8,
    images: PathBuf,
    kvm: bool,
    /// The program that brought it up; slow links are processes of it.
    program: PathBuf,
}

impl Lab {
    /// Brings up what is missing, starts what is off, and takes away what is too many.
    pub fn up(name: &str, size: Size, say: &(dyn Fn(&str) + Sync)) -> Result<Self> {
        check_size(size)?;
        check_name(name)?;
        requirements::provide(say)?;
        let folder = Path::new(ALL_LABS).join(name);
        fs::create_dir_all(&folder)?;
        let _lock = lock(&folder)?;
        limits::raise(&Path::new(ALL_LABS).join(FORMER_LIMIT))?;
        let lab = match Self::open(name) {
            Ok(lab) => lab,
            Err(_) => Self::make(name, folder, say)?,
        };
        lab.resize(size, say)?;
        Ok(lab)
    }

    /// The lab of this name, which must be up.
    pub fn open(name: &str) -> Result<Self> {
        check_name(name)?;
        let folder = Path::new(ALL_LABS).join(name);
        let not_up = || anyhow!("the lab {name} is not up; `make lab-up` brings one up");
        let settings = fs::read(folder.join("lab.json")).with_context(not_up)?;
        let lab = Self { name: name.to_owned(), settings: serde_json::from_slice(&settings)?, folder };
        lab.switch().with_context(not_up)?;
        Ok(lab)
    }

    fn make(name: &str, folder: PathBuf, say: &(dyn Fn(&str) + Sync)) -> Result<Self> {
        // Whatever a lab of this name left behind, before a crash or a reboot of the machine.
        if folder.join("hosts").exists() {
            say("removing what is left of an earlier lab, whose switch is gone");
        }
        sweep(name, &folder)?;
        network::check_free(name)?;
        let images = images::provide(say)?;
        let kvm = images::has_kvm(&images)?;
        let program = std::env::current_exe()?;
        // A range is taken as soon as the switch has it, so nobody else may choose until then.
        let _choice = lock(Path::new(ALL_LABS))?;
        let subnet = Subnet::unused()?;
        let lab = Self { name: name.to_owned(), settings: Settings { subnet: subnet.0, images, kvm, program }, folder };
        lab.make_operator_key()?;
        fs::create_dir_all(lab.folder.join("hosts"))?;
        host::write_keeper(&lab.folder)?;
        Switch::start(&lab.cgroup()?, name, subnet)?;
        // Last: a lab without it was never whole, and is begun anew.
        replace_file(&lab.folder.join("lab.json"), &serde_json::to_vec_pretty(&lab.settings)?)?;
        Ok(lab)
    }

    fn make_operator_key(&self) -> Result<()> {
        let key = self.operator_key();
        run(command("ssh-keygen", ["-q", "-t", "ed25519", "-N", "", "-C", "operator", "-f"]).arg(key)).map(drop)
    }

    fn resize(&self, size: Size, say: &(dyn Fn(&str) + Sync)) -> Result<()> {
        let wanted = self.wanted(size);
        for host in self.hosts()? {
            if !host.record.temporary && !wanted.iter().any(|other| other.name == host.name) {
                say(&format!("removing {}", host.name));
                host.erase()?;
            }
        }
        let absent: Vec<&Host> = wanted.iter().filter(|host| !host.is_running()).collect();
        if !absent.is_empty() {
            say(&format!("starting {}", absent.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(" ")));
        }
        start_all(&absent)?;
        inventory::write(self)
    }

    fn wanted(&self, size: Size) -> Vec<Host> {
        let hypervisors = (0..size.hypervisors).map(|index| {
            let zone = ZONES[usize::from(index) % ZONES.len()];
            self.permanent(format!("hv{}", index + 1), Kind::Hypervisor, HYPERVISORS_FROM + index, zone)
        });
        let hosts = (0..size.hosts).map(|index| {
            let zone = ZONES[usize::from(index) % ZONES.len()];
            self.permanent(format!("node{}", index + 1), Kind::Fast, HOSTS_FROM + index, zone)
        });
        let services = (0..size.services).map(|index| {
            let zone = ZONES[usize::from(index) % ZONES.len()];
            self.permanent(format!("service{}", index + 1), Kind::Services, SERVICES_FROM + index, zone)
        });
        hypervisors.chain(hosts).chain(services).collect()
    }

    fn permanent(&self, name: String, kind: Kind, number: u8, zone: &str) -> Host {
        let record = Record { kind, number, zone: zone.to_owned(), temporary: false };
        Host { lab: self.clone(), name, record }
    }

    /// Starts new hosts, for a test, that are gone when the answer is dropped. They share nothing with others but the
    /// switch. Their addresses come one after the other.
    pub fn borrow(&self, kind: Kind, count: usize) -> Result<Vec<Borrowed>> {
        self.borrow_with_disks(kind, count, kind.disk_size())
    }

    /// The same, with data disks of this size, such as `8G`.
    pub fn borrow_with_disks(&self, kind: Kind, count: usize, disk_size: &str) -> Result<Vec<Borrowed>> {
        let borrowed = self.reserve(kind, count, disk_size)?;
        start_all(&borrowed.iter().map(|host| &host.0).collect::<Vec<_>>())?;
        Ok(borrowed)
    }

    /// Takes numbers that no other host has, in a row.
    fn reserve(&self, kind: Kind, count: usize, disk_size: &str) -> Result<Vec<Borrowed>> {
        let _lock = lock(&self.folder)?;
        let taken: Vec<u8> = self.hosts()?.iter().map(|host| host.record.number).collect();
        let kept = self.kept_numbers()?;
        let numbers: Vec<u8> = (TEMPORARY_FROM..GUESTS_FROM).collect();
        let free = || numbers.windows(count).filter(|row| row.iter().all(|number| !taken.contains(number)));
        let free = free().min_by_key(|row| row.iter().filter(|number| kept.contains(number)).count());
        let free = free.context("there are too many hosts in the lab")?;
        free.iter().map(|number| self.create(kind, *number, disk_size).map(Borrowed)).collect()
    }

    fn create(&self, kind: Kind, number: u8, disk_size: &str) -> Result<Host> {
        let zone = ZONES[usize::from(number) % ZONES.len()].to_owned();
        let prefix = if kind == Kind::Hypervisor { "h" } else { "n" };
        let record = Record { kind, number, zone, temporary: true };
        let host = Host { lab: self.clone(), name: format!("{prefix}{number}"), record };
        host.create_with(disk_size)?;
        Ok(host)
    }

    /// All hosts, in the order of their addresses.
    pub fn hosts(&self) -> Result<Vec<Host>> {
        let mut hosts = Vec::new();
        for entry in fs::read_dir(self.folder.join("hosts"))? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let record = fs::read(entry.path().join("host.json"));
            let Some(record) = record.ok().filter(|_| !name.starts_with('.')) else { continue };
            hosts.push(Host { lab: self.clone(), name, record: serde_json::from_slice(&record)? });
        }
        hosts.sort_by_key(|host| host.record.number);
        Ok(hosts)
    }

    pub fn host(&self, name: &str) -> Result<Host> {
        let hosts = self.hosts()?;
        let names = hosts.iter().map(|host| host.name.as_str()).collect::<Vec<_>>().join(" ");
        let found = hosts.iter().find(|host| host.name == name).cloned();
        found.ok_or_else(|| anyhow!("there is no host called {name} in the lab; there are: {names}"))
    }

    /// Ends everything a lab is made of, whatever state it is in. The images stay.
    pub fn down(name: &str) -> Result<()> {
        check_name(name)?;
        requirements::check_root()?;
        let folder = Path::new(ALL_LABS).join(name);
        let _lock = if folder.exists() { Some(lock(&folder)?) } else { None };
        inventory::remove(name)?;
        sweep(name, &folder)?;
        if folder.exists() {
            remove_folder(&folder)?;
        }
        leave_if_last()
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn subnet(&self) -> Subnet {
        Subnet(self.settings.subnet)
    }

    pub fn has_kvm(&self) -> bool {
        self.settings.kvm
    }

    /// The folder of images that the lab runs on: base, hypervisor, guest.qcow2.
    pub fn images(&self) -> &Path {
        &self.settings.images
    }

    /// The program whose `wire` command is a slow link.
    pub fn program(&self) -> &Path {
        &self.settings.program
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The private key that every host lets in as root.
    pub fn operator_key(&self) -> PathBuf {
        self.folder.join("operator")
    }

    pub(crate) fn cgroup(&self) -> Result<Cgroup> {
        Cgroup::of_lab(&self.name)
    }

    pub(crate) fn switch(&self) -> Result<Switch> {
        Switch::find(&self.cgroup()?)?.ok_or_else(|| anyhow!("the switch of the lab {} is gone", self.name))
    }
}

/// A host that is there as long as somebody holds it.
pub struct Borrowed(Host);

impl Borrowed {
    pub(crate) fn new(host: Host) -> Self {
        Self(host)
    }
}

impl std::ops::Deref for Borrowed {
    type Target = Host;

    fn deref(&self) -> &Host {
        &self.0
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if let Err(error) = self.0.erase() {
            eprintln!("could not erase {}: {error:#}", self.0.name());
        }
    }
}

pub(crate) fn start_all(hosts: &[&Host]) -> Result<()> {
    each(hosts, start)
}

/// Does something to all hosts at once.
pub(crate) fn each(hosts: &[&Host], act: impl Fn(&Host) -> Result<()> + Sync) -> Result<()> {
    let results: Vec<Result<()>> = thread::scope(|scope| {
        let threads: Vec<_> = hosts.iter().map(|host| scope.spawn(|| act(host))).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        joined.map(|result| result.unwrap_or_else(|_| Err(anyhow!("a thread for a host panicked")))).collect()
    });
    results.into_iter().collect()
}

/// Starts a host, which is made first if it does not exist.
fn start(host: &Host) -> Result<()> {
    if !host.folder().join("host.json").exists() {
        if host.folder().exists() {
            host.erase()?;
        }
        host.create()?;
    }
    host.start()
}

/// Ends the processes of a lab and removes its cgroup, its interface and all files but the lock.
fn sweep(name: &str, folder: &Path) -> Result<()> {
    let cgroup = Cgroup::of_lab(name)?;
    let was_there = cgroup.path().exists();
    cgroup.kill()?;
    cgroup.remove()?;
    if was_there && fs::exists(format!("/sys/class/net/{name}"))? {
        // The kernel takes it away with the switch, but not at once.
        let _ = run(&mut command("ip", ["link", "del", name]));
    }
    if !folder.exists() {
        return Ok(());
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_name() == "lock" {
            continue;
        }
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            remove_folder(&path)?;
        } else {
            fs::remove_file(&path).with_context(|| format!("could not remove {}", path.display()))?;
        }
    }
    Ok(())
}

/// With the last lab goes what all of them shared.
fn leave_if_last() -> Result<()> {
    let all = Path::new(ALL_LABS);
    let Ok(entries) = fs::read_dir(all) else { return Ok(()) };
    if entries.filter_map(Result::ok).all(|entry| entry.file_type().is_ok_and(|kind| kind.is_file())) {
        limits::restore(&all.join(FORMER_LIMIT))?;
        fs::remove_dir_all(all)?;
    }
    Ok(())
}

fn check_name(name: &str) -> Result<()> {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    if name.is_empty() || name.len() > 15 || !plain {
        bail!("`{name}` cannot be a lab's name: at most 15 lower-case letters, digits and hyphens");
    }
    Ok(())
}

fn check_size(size: Size) -> Result<()> {
    if size.hypervisors > HOSTS_FROM - HYPERVISORS_FROM {
        bail!("at most {} hypervisors", HOSTS_FROM - HYPERVISORS_FROM);
    }
    if size.hosts > SERVICES_FROM - HOSTS_FROM {
        bail!("at most {} hosts", SERVICES_FROM - HOSTS_FROM);
    }
    if size.services > TEMPORARY_FROM - SERVICES_FROM {
        bail!("at most {} hosts with services", TEMPORARY_FROM - SERVICES_FROM);
    }
    Ok(())
}
