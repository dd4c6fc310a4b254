//! `make bench`: measures etcdrun against its peers and against its own limits, on this machine, in one run.
//!
//! Hosts are one sshd on loopback, so they share the machine's cores with whoever drives them. All that is compared is
//! measured in turn, and every result is verified. Exits with 1 if a bar is missed.

mod backup;
mod bare;
mod certs;
mod cluster;
mod delay;
mod graphs;
mod guests;
mod hosts;
mod peers;
mod process;
mod races;
mod replace;
mod rollout;
mod seen;
mod site;
mod stand_ins;
mod table;
mod taken;
mod works;
// The clients of the tests: what they see is what both are about.
#[path = "../../suite/lab/knock.rs"]
mod knock;
#[path = "../../suite/lab/writer.rs"]
mod writer;

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, Result, ensure};
use clap::{Parser, Subcommand};

use table::{Row, table};
use works::{Bench, Often, Places, WORKS};

#[derive(Parser)]
#[command(about = "Measures etcdrun against its peers and its own limits")]
struct Args {
    /// Only works whose names contain this, or one of several words with commas between: version, commands, limit, chain, files,
    /// many, delay, compile, schedule, site, guests, backup, replace, rollout.
    #[arg(long, default_value = "")]
    filter: String,
    /// How often each is measured; the slowest peer only once.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// How often each rollout is measured; 20 for what the bars are about.
    #[arg(long, default_value_t = 3)]
    runs: usize,
    /// How many hosts the races against peers have; fewer to try things.
    #[arg(long, default_value_t = 50)]
    hosts: usize,
    /// The program to measure.
    #[arg(long, default_value = "target/release/etcdrun")]
    program: PathBuf,
    /// Where results go.
    #[arg(long, default_value = "target/bench")]
    out: PathBuf,
    #[command(subcommand)]
    part: Option<Part>,
}

/// Parts that run in a process of their own.
#[derive(Subcommand)]
#[command(hide = true)]
enum Part {
    Bare {
        job: PathBuf,
    },
    Compiled {
        folder: PathBuf,
    },
    Scheduled {
        folder: PathBuf,
    },
    Journaled {
        folder: PathBuf,
    },
    Entries {
        folder: PathBuf,
    },
    Behind {
        program: PathBuf,
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        words: Vec<OsString>,
    },
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    match &args.part {
        Some(part) => run_part(part).map(|()| ExitCode::SUCCESS),
        None => run_all(&args),
    }
}

fn run_part(part: &Part) -> Result<()> {
    let figures = match part {
        Part::Bare { job } => {
            let job = serde_json::from_slice(&fs::read(job)?)?;
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
            return runtime.block_on(bare::run(job));
        }
        Part::Compiled { folder } => graphs::compiled(folder),
        Part::Scheduled { folder } => graphs::scheduled(folder, false),
        Part::Journaled { folder } => graphs::scheduled(folder, true),
        Part::Entries { folder } => return rollout::entries(folder),
        Part::Behind { program, words } => return process::step_behind(program, words),
    };
    println!("{}", serde_json::to_string(&figures?)?);
    Ok(())
}

fn run_all(args: &Args) -> Result<ExitCode> {
    let program = args.program.canonicalize().with_context(|| format!("there is no {}", args.program.display()))?;
    process::heed_signals()?;
    fs::create_dir_all(&args.out)?;
    // On a real disk, because syncing is part of what is measured.
    let out = args.out.canonicalize()?;
    let folder = tempfile::Builder::new().prefix("work-").tempdir_in(&out)?;
    // Real hosts have a disk each. One for all of them, where each file is made among those that were just removed,
    // would be most of what is measured.
    let memory = Path::new("/dev/shm");
    let disks = if memory.is_dir() { memory } else { folder.path() };
    let disks = tempfile::Builder::new().prefix("etcdrun-bench-").tempdir_in(disks)?;
    let places = Places { folder: folder.path().to_owned(), disks: disks.path().to_owned(), peers: out.join("peers") };
    let size = args.hosts.clamp(1, hosts::MOST);
    let often = Often { rounds: args.rounds.max(1), rollouts: args.runs.max(1), size };
    let mut bench = Bench::new(places, program, often)?;
    let ticks = taken::Ticks::now()?;
    let mut rows = Vec::new();
    let is_wanted = |name: &str| args.filter.split(',').any(|part| name.contains(part));
    for (name, work) in WORKS.iter().filter(|(name, _)| is_wanted(name)) {
        eprintln!("{name}");
        rows.extend(work(&mut bench).with_context(|| (*name).to_owned())?);
    }
    ensure!(!rows.is_empty(), "no work is called {}", args.filter);
    write(&args.out, &rows, ticks.percent_since()?)?;
    Ok(if rows.iter().all(|row| row.ok) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(out: &Path, rows: &[Row], taken: f64) -> Result<()> {
    let text = table(rows) + &format!("\nOther machines took {taken:.1}% of the processors meanwhile (steal).\n");
    fs::write(out.join("results.json"), serde_json::to_string_pretty(rows)? + "\n")?;
    fs::write(out.join("table.md"), &text)?;
    println!("{text}");
    Ok(())
}
