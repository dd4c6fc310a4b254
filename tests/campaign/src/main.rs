//! Lives of clusters over all configurations, with faults at all moments, and a judge who knows nothing of etcdrun.
//!
//! ```text
//! seed ── Choice ── row ── Life: site.yaml, then operations ── each: Operation with a Fault, converge, settled ── steps.jsonl
//!                            └── Judge (tests/judge): clients all the time ── verdict at the end of the life
//! ```

mod adopted;
mod authority;
mod choice;
mod clock;
mod fault;
mod hosts;
mod lengths;
mod life;
mod machine;
mod matrix;
mod operation;
mod operator;
mod record;
mod report;
mod row;
mod site;
mod state_disk;
mod world;

use std::{
    fs,
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use choice::Choice;
use clap::Parser;
use etcdrun_lab::{ETCD_VERSIONS, Lab};
use fault::Fault;
use lengths::Lengths;
use life::Life;
use operation::Kind;
use operator::Program;
use record::Line;
use row::{Addresses, Auth, Ca, Data, Discovery, Disk, Log, Machines, Origin, Patch, Ports, Row, Shell, Ssh};

/// Random operations on random clusters, with faults, under the eyes of a judge.
#[derive(Parser)]
#[command(name = "campaign")]
struct Arguments {
    /// Which lab
    #[arg(long, default_value = "etcdrun-test", env = "ETCDRUN_LAB")]
    lab: String,
    /// The program that is judged; a debug build
    #[arg(long, default_value = "target/debug/etcdrun")]
    program: PathBuf,
    /// Where results and evidence are kept
    #[arg(long, default_value = "target/campaign", default_value_if("matrix", "true", "target/matrix"))]
    results: PathBuf,
    /// Print what the results so far show, and play nothing
    #[arg(long)]
    report: bool,
    /// The first life has this seed, the next ones those that follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many lives
    #[arg(long, default_value_t = 1)]
    lives: u64,
    /// How many campaigns share the lives or rows, each in a lab of its own
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    lanes: u64,
    /// Which of them this one is, from 0
    #[arg(long, default_value_t = 0)]
    lane: u64,
    /// How many operations in a life
    #[arg(long, default_value_t = 8)]
    steps: usize,
    /// Begin no operation after so many minutes
    #[arg(long)]
    minutes: Option<u64>,
    /// Keep outputs, journals and logs also if there is no violation
    #[arg(long)]
    keep: bool,
    /// So many members, whatever the seed says
    #[arg(long)]
    members: Option<usize>,
    /// Clusters of guests, on this: bridge, macvtap
    #[arg(long, value_parser = machines)]
    machines: Option<Machines>,
    /// No faults
    #[arg(long)]
    calm: bool,
    /// Switch this rule or policy off, to see whether that is noticed
    #[arg(long)]
    off: Option<String>,
    /// Play the rows of the matrix, each as a whole life without faults, and nothing random
    #[arg(long)]
    matrix: bool,
    /// Only these rows of the matrix, also if they were played before
    #[arg(long, value_delimiter = ',')]
    rows: Vec<usize>,
    /// Only these operations
    #[arg(long, value_delimiter = ',', value_parser = kind)]
    only: Vec<Kind>,
    /// Only these faults
    #[arg(long, value_delimiter = ',', value_parser = fault)]
    faults: Vec<Fault>,
}

fn kind(text: &str) -> Result<Kind, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

fn machines(text: &str) -> Result<Machines, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

fn fault(text: &str) -> Result<Fault, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(2)
        }
    }
}

/// Whether there was no violation.
fn run(arguments: &Arguments) -> Result<bool> {
    let begun = Instant::now();
    if arguments.report {
        let lines = record::read(&arguments.results)?;
        print!("{}", report::table(&lines));
        return Ok(report::violations(&lines).is_empty());
    }
    in_own_mounts()?;
    fs::create_dir_all(&arguments.results)?;
    let results = arguments.results.canonicalize()?;
    // A build meanwhile must not exchange it.
    let path = results.join(format!("etcdrun-{}", arguments.lane));
    fs::copy(&arguments.program, &path).context("there is no program; `cargo build` makes it")?;
    let program = Program { path, off: arguments.off.clone() };
    if arguments.matrix {
        let is_ours = |number: usize| (number as u64 - 1) % arguments.lanes == arguments.lane;
        return matrix::run(&results, &program, &arguments.lab, &arguments.rows, is_ours);
    }
    let done: Vec<u64> = record::read(&results)?.iter().filter_map(seed_of_life).collect();
    let mut lengths = Lengths::new()?;
    let is_over = || arguments.minutes.is_some_and(|minutes| begun.elapsed() > Duration::from_secs(minutes * 60));
    let mut holds = true;
    let seeds = (arguments.seed..).take(arguments.lives as usize);
    for seed in seeds.filter(|seed| (seed - arguments.seed) % arguments.lanes == arguments.lane) {
        if done.contains(&seed) {
            println!("life {seed} was lived before");
            continue;
        }
        if is_over() {
            println!("the time is over; the next life has the seed {seed}");
            break;
        }
        let mut choice = Choice::new(seed ^ 0x5eed);
        let mut row = row_of(&mut choice);
        row.members = arguments.members.unwrap_or(row.members);
        if let Some(machines) = arguments.machines {
            let Row { version, members, auth, .. } = row;
            row = Row { version, members: members.min(3), auth, machines, ..Row::default() };
        }
        println!("life {seed}: {row}");
        let life_begun = Instant::now();
        let mut life = Life::begin(seed, &row, &results, &program, Lab::open(&arguments.lab)?, &mut lengths)?;
        if row.data == Data::Large {
            life.step(Kind::Fill, &[])?;
        }
        let mut violations = Vec::new();
        let mut steps = 0;
        for _ in 0..arguments.steps * 4 {
            let kinds: &[Kind] = if arguments.only.is_empty() { &Kind::OFTEN } else { &arguments.only };
            let kind = *life.choice().one_of(kinds);
            let faults: &[Fault] = match arguments.calm {
                true => &[],
                false if arguments.faults.is_empty() => &Fault::ALL,
                false => &arguments.faults,
            };
            if is_over() {
                break;
            }
            let Some(step) = life.step(kind, faults)? else { continue };
            steps += 1;
            let number = step.number;
            violations.extend(step.violations.iter().map(|violation| format!("step {number}, {kind:?}: {violation}")));
            // What follows a violation proves nothing.
            if !step.violations.is_empty() || steps >= arguments.steps {
                break;
            }
        }
        let life = life.end(violations, life_begun, arguments.keep)?;
        holds &= life.violations.is_empty();
        println!("  {} operations in {:.0} s, {} violations", life.steps, life.seconds, life.violations.len());
        life.violations.iter().for_each(|violation| println!("  VIOLATION (seed {seed}): {violation}"));
        lengths.save(&results)?;
    }
    Ok(holds)
}

/// Begins again where what it mounts is seen by nothing else, and goes with it, however it ends.
fn in_own_mounts() -> Result<()> {
    const MARK: &str = "ETCDRUN_CAMPAIGN_MOUNTS";
    if std::env::var_os(MARK).is_some() {
        return Ok(());
    }
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "--"]).arg(std::env::current_exe()?);
    Err(command.args(std::env::args_os().skip(1)).env(MARK, "yes").exec()).context("unshare could not be started")
}

fn seed_of_life(line: &Line) -> Option<u64> {
    match line {
        Line::Life(life) => Some(life.seed),
        Line::Step(_) => None,
    }
}

fn row_of(choice: &mut Choice) -> Row {
    let mut row = Row {
        version: (*choice.one_of(&ETCD_VERSIONS)).to_owned(),
        members: *choice.one_of(&[1, 2, 3, 3, 3, 5, 5]),
        auth: *choice.one_of(&[Auth::Off, Auth::Certificate, Auth::Password]),
        ports: *choice.one_of(&[Ports::Usual, Ports::Others]),
        log: *choice.one_of(&[Log::Long, Log::Short]),
        addresses: *choice.one_of(&[Addresses::V4, Addresses::V4, Addresses::V6]),
        ssh: *choice.one_of(&[Ssh::Root, Ssh::Sudo, Ssh::Port, Ssh::Jump]),
        ca: *choice.one_of(&[Ca::Made, Ca::Made, Ca::Brought, Ca::Command]),
        shell: *choice.one_of(&[Shell::Both, Shell::Bash, Shell::Dash, Shell::Busybox]),
        data: *choice.one_of(&[Data::Small, Data::Small, Data::Small, Data::Large]),
        ..Row::default()
    };
    // A service for discovery is for etcd up to 3.6, and with authentication 3.4 is not upgraded.
    if row.version == "3.4" && row.auth != Auth::Off {
        row.discovery = *choice.one_of(&[Discovery::Inventory, Discovery::Url]);
    }
    // What came later is drawn later, so that a seed still means what it meant.
    row.patch =
        *choice.one_of(&[Patch::Newest, Patch::Newest, Patch::Newest, Patch::Newest, Patch::Old, Patch::Strict]);
    if Row::release_of(&row.version, row.patch).is_none() {
        row.patch = Patch::Newest;
    }
    row.disk = *choice.one_of(&[Disk::Mounted, Disk::Mounted, Disk::Mounted, Disk::Root, Disk::Device]);
    match choice.below(8) {
        0 if row.discovery == Discovery::Inventory => row.discovery = Discovery::Srv,
        1 if row.discovery == Discovery::Inventory && row.ca != Ca::Made && row.disk != Disk::Device => {
            row.origin = Origin::Adopted;
        }
        _ => {}
    }
    row
}
