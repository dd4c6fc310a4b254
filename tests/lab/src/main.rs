//! The lab's command line.

use std::{
    fmt::Write as _,
    io::Write as _,
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Parser, Subcommand};
use etcdrun_lab::{
    DEFAULT_NAME, ETCD_VERSIONS, Guest, Host, Kind, Lab, LinkFault, S3, Size, etcd, etcd_tools, patroni_wheels, wire,
};

/// Real hypervisors, guests and hosts on one machine, to test etcdrun in.
#[derive(Parser)]
#[command(name = "lab")]
struct Arguments {
    /// Which lab; several can be up at once
    #[arg(long, global = true, default_value = DEFAULT_NAME, env = "ETCDRUN_LAB")]
    name: String,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring the lab up, or to another size
    Up(Sizes),
    /// Take the lab down, whatever state it is in; nothing is left but the cached images
    Down,
    /// Bring a lab up, run a command with it, and take the lab down again
    Run {
        #[command(flatten)]
        sizes: Sizes,
        #[arg(required = true, last = true)]
        command: Vec<String>,
    },
    /// Say whether this machine can host a lab, and why not
    Check,
    #[command(flatten)]
    Inside(Inside),
    /// Print where the etcd of a minor version is, or of all
    Etcd { minor: Option<String> },
    /// Print the folder of etcdctl and etcdutl
    Tools,
    /// Print the folder of Patroni's Python packages, which is fetched once
    Wheels,
    /// Serve the folders in a folder as S3 buckets on loopback, until interrupted
    S3 { folder: PathBuf },
    /// Carry frames between two interfaces; what a slow link is made of
    #[command(hide = true)]
    Wire {
        left: String,
        right: String,
        #[arg(long)]
        delay_us: u64,
        #[arg(long)]
        loss: u8,
    },
}

/// What is done to a lab that is up.
#[derive(Subcommand)]
enum Inside {
    /// Show what is there and how it is
    Status,
    /// Run a command in a host, without SSH
    Enter {
        host: String,
        #[arg(last = true)]
        command: Vec<String>,
    },
    /// Switch hosts on
    Start { hosts: Vec<String> },
    /// Take the power from hosts, or from a guest: HYPERVISOR/GUEST
    Kill { targets: Vec<String> },
    /// Take the power from hosts, and with it what was written to their data disks and was not synced
    LosePower { hosts: Vec<String> },
    /// Stop hosts, or a guest, where they stand: nothing answers, nothing is closed
    Freeze { targets: Vec<String> },
    /// Let what was frozen go on
    Thaw { targets: Vec<String> },
    /// Let no frame pass to or from hosts, without telling them
    Cut { hosts: Vec<String> },
    /// Delay every frame to and from a host, each way
    Delay {
        host: String,
        /// Like 10ms, 0.5s or 200us
        #[arg(value_parser = duration)]
        delay: Duration,
    },
    /// Lose some of a host's frames, each way
    Drop {
        host: String,
        /// How many of a hundred
        #[arg(value_parser = clap::value_parser!(u8).range(0..=100))]
        percent: u8,
    },
    /// Let no frame pass between two sides; each is a list of hosts, separated by commas
    Partition { one: String, other: String },
    /// Take back all faults of the network, and thaw what was frozen
    Heal,
    /// End SSH sessions of a host
    KillSession { host: String },
    /// Stop SSH sessions of a host; their connections stay open
    FreezeSession { host: String },
    /// Fill the disk that a folder of a host is on
    Fill { host: String, folder: String },
    /// Make room again on a disk that was filled
    Empty { host: String, folder: String },
    /// Turn over some bytes in the middle of a file
    Corrupt {
        host: String,
        path: String,
        /// In so many pages of 4096 bytes
        #[arg(long, default_value_t = 1)]
        pages: u64,
    },
    /// Move a guest's clock by seconds: HYPERVISOR/GUEST
    Clock {
        guest: String,
        #[arg(allow_negative_numbers = true)]
        seconds: i64,
    },
    /// Replace a certificate of a host by one that ended yesterday
    Expire {
        host: String,
        path: String,
        /// The key of its authority, on this machine
        #[arg(long)]
        ca_key: PathBuf,
    },
    /// Give a host another SSH host key
    ChangeKey {
        host: String,
        /// Give it its own one back
        #[arg(long)]
        restore: bool,
    },
}

#[derive(Args)]
struct Sizes {
    /// How many hypervisors
    #[arg(long, default_value_t = 3)]
    hypervisors: u8,
    /// How many fast hosts
    #[arg(long, default_value_t = 10)]
    hosts: u8,
    /// How many hosts with the packages of PostgreSQL, HAProxy, Prometheus and others
    #[arg(long, default_value_t = 0)]
    services: u8,
}

impl Sizes {
    fn size(&self) -> Size {
        Size { hypervisors: self.hypervisors, hosts: self.hosts, services: self.services }
    }
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("lab: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    let name = arguments.name.as_str();
    match &arguments.verb {
        Verb::Up(sizes) => up(name, sizes)?,
        Verb::Down => Lab::down(name)?,
        Verb::Run { sizes, command } => return run_with(name, sizes, command),
        Verb::Check => etcdrun_lab::provide_requirements(&say)?,
        Verb::Wire { left, right, delay_us, loss } => wire::run(left, right, Duration::from_micros(*delay_us), *loss)?,
        Verb::Etcd { minor } => print_etcd(minor.as_deref())?,
        Verb::S3 { folder } => serve_s3(folder)?,
        Verb::Tools => println!("{}", etcd_tools()?.display()),
        Verb::Wheels => println!("{}", patroni_wheels()?.display()),
        Verb::Inside(verb) => return in_lab(&Lab::open(name)?, verb),
    }
    Ok(ExitCode::SUCCESS)
}

fn in_lab(lab: &Lab, verb: &Inside) -> Result<ExitCode> {
    match verb {
        Inside::Status => status(lab)?,
        Inside::Enter { host, command } => return enter(&lab.host(host)?, command),
        Inside::Start { hosts } => each(lab, hosts, Host::start)?,
        Inside::Kill { targets } => each_target(lab, targets, Host::kill, Guest::kill)?,
        Inside::LosePower { hosts } => each(lab, hosts, Host::lose_power)?,
        Inside::Freeze { targets } => each_target(lab, targets, Host::freeze, Guest::freeze)?,
        Inside::Thaw { targets } => each_target(lab, targets, Host::thaw, Guest::thaw)?,
        Inside::Cut { hosts } => each(lab, hosts, Host::cut)?,
        Inside::Delay { host, delay } => lab.host(host)?.delay(*delay)?,
        Inside::Drop { host, percent } => lab.host(host)?.drop_frames(*percent)?,
        Inside::Partition { one, other } => partition(lab, one, other)?,
        Inside::Heal => lab.heal()?,
        Inside::KillSession { host } => lab.host(host)?.sessions()?.iter().try_for_each(|session| session.kill())?,
        Inside::FreezeSession { host } => {
            lab.host(host)?.sessions()?.iter().try_for_each(|session| session.freeze())?
        }
        Inside::Fill { host, folder } => lab.host(host)?.fill(folder)?,
        Inside::Empty { host, folder } => lab.host(host)?.empty(folder)?,
        Inside::Corrupt { host, path, pages } => lab.host(host)?.corrupt_pages(path, *pages)?,
        Inside::Clock { guest, seconds } => find_guest(lab, guest)?.move_clock(*seconds)?,
        Inside::Expire { host, path, ca_key } => lab.host(host)?.expire_certificate(path, ca_key)?,
        Inside::ChangeKey { host, restore: false } => lab.host(host)?.change_host_key()?,
        Inside::ChangeKey { host, restore: true } => lab.host(host)?.restore_host_key()?,
    }
    Ok(ExitCode::SUCCESS)
}

fn say(line: &str) {
    // Whoever reads this may stop in the middle, and the lab goes on.
    let _ = writeln!(std::io::stderr(), "lab: {line}");
}

fn up(name: &str, sizes: &Sizes) -> Result<()> {
    let lab = Lab::up(name, sizes.size(), &say)?;
    let count = lab.hosts()?.len();
    let accelerator = if lab.has_kvm() { "KVM" } else { "emulation, as KVM does not run guests here" };
    let subnet = lab.subnet().operator().octets()[2];
    let inventory = lab.folder().join("inventory.yaml");
    let text = format!("The lab {name} is up: {count} hosts in 10.86.{subnet}.0/24, guests by {accelerator}.\n");
    let _ = writeln!(std::io::stdout(), "{text}Inventory: {}", inventory.display());
    Ok(())
}

/// Takes the lab down whatever becomes of the command; an interrupt is for the command, which ends by it.
fn run_with(name: &str, sizes: &Sizes, command: &[String]) -> Result<ExitCode> {
    etcdrun_lab::outlive_interrupts();
    let up = Lab::up(name, sizes.size(), &say);
    let result = up.and_then(|_| {
        let mut child = std::process::Command::new(&command[0]);
        child
            .args(&command[1..])
            .env("ETCDRUN_LAB", name)
            .status()
            .with_context(|| format!("could not start {}", command[0]))
    });
    Lab::down(name)?;
    let code = result?.code().and_then(|code| u8::try_from(code).ok());
    Ok(ExitCode::from(code.unwrap_or(1)))
}

fn status(lab: &Lab) -> Result<()> {
    let mut text = format!("{:<8} {:<11} {:<8} {:<14} {:<8} link\n", "name", "kind", "zone", "address", "state");
    for host in lab.hosts()? {
        let kind = match host.kind() {
            Kind::Fast => "host",
            Kind::Services => "services",
            Kind::Hypervisor => "hypervisor",
        };
        let (address, state) = (host.address().to_string(), state(&host));
        writeln!(text, "{:<8} {kind:<11} {:<8} {address:<14} {state:<8} {}", host.name(), host.zone(), link(&host)?)?;
        if host.kind() == Kind::Hypervisor && state == "running" {
            text.push_str(&guests(&host));
        }
    }
    text.push_str(&lab.partitions()?);
    // Whoever reads this may stop in the middle.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn state(host: &Host) -> &'static str {
    if !host.is_running() {
        "off"
    } else if host.is_frozen() {
        "frozen"
    } else {
        "running"
    }
}

fn link(host: &Host) -> Result<String> {
    let LinkFault { cut, delay, loss } = host.link_fault()?;
    let mut words = Vec::new();
    if cut {
        words.push("cut".to_owned());
    }
    if !delay.is_zero() {
        words.push(format!("{delay:?} slower each way"));
    }
    if loss > 0 {
        words.push(format!("{loss}% lost"));
    }
    Ok(if words.is_empty() { "good".to_owned() } else { words.join(", ") })
}

fn guests(hypervisor: &Host) -> String {
    let list = hypervisor.run(&["virsh", "-q", "list", "--all"]).unwrap_or_default();
    list.lines().map(|line| format!("  guest {}\n", line.trim())).collect()
}

fn enter(host: &Host, command: &[String]) -> Result<ExitCode> {
    let words: Vec<&str> = if command.is_empty() { vec!["bash"] } else { command.iter().map(String::as_str).collect() };
    let status = host.command(&words)?.stdin(std::process::Stdio::inherit()).status()?;
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}

fn each(lab: &Lab, names: &[String], act: impl Fn(&Host) -> Result<()>) -> Result<()> {
    if names.is_empty() {
        bail!("name at least one host");
    }
    names.iter().try_for_each(|name| act(&lab.host(name)?))
}

fn each_target(
    lab: &Lab,
    targets: &[String],
    host: impl Fn(&Host) -> Result<()>,
    guest: impl Fn(&Guest) -> Result<()>,
) -> Result<()> {
    if targets.is_empty() {
        bail!("name at least one host, or a guest as HYPERVISOR/GUEST");
    }
    for target in targets {
        if target.contains('/') {
            guest(&find_guest(lab, target)?)?;
        } else {
            host(&lab.host(target)?)?;
        }
    }
    Ok(())
}

fn find_guest(lab: &Lab, target: &str) -> Result<Guest> {
    let (hypervisor, guest) =
        target.split_once('/').ok_or_else(|| anyhow!("`{target}` is no guest; write HYPERVISOR/GUEST"))?;
    Ok(Guest::new(&lab.host(hypervisor)?, guest))
}

fn partition(lab: &Lab, one: &str, other: &str) -> Result<()> {
    let side = |names: &str| names.split(',').map(|name| lab.host(name)).collect::<Result<Vec<_>>>();
    let (one, other) = (side(one)?, side(other)?);
    lab.partition(&one.iter().collect::<Vec<_>>(), &other.iter().collect::<Vec<_>>())
}

fn print_etcd(minor: Option<&str>) -> Result<()> {
    let minors = minor.map_or_else(|| ETCD_VERSIONS.to_vec(), |minor| vec![minor]);
    for minor in minors {
        let etcd = etcd(minor)?;
        println!("{} {}", etcd.version, etcd.path.display());
    }
    Ok(())
}

fn serve_s3(folder: &Path) -> Result<()> {
    let s3 = S3::start(folder)?;
    println!("{} with access key {} and secret key {}", s3.endpoint(), S3::ACCESS_KEY, S3::SECRET_KEY);
    s3.wait()
}

fn duration(text: &str) -> Result<Duration> {
    let split = text.find(|letter: char| letter.is_ascii_alphabetic()).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().with_context(|| format!("`{text}` does not begin with a number"))?;
    let seconds = match unit {
        "us" => number / 1e6,
        "ms" => number / 1e3,
        "s" => number,
        _ => bail!("`{text}` has no unit that is known; write us, ms or s"),
    };
    Ok(Duration::try_from_secs_f64(seconds)?)
}
