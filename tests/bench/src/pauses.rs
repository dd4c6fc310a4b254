//! When this machine stood still. Where its processors are threads of another machine, they may have to wait there, for tens of
//! milliseconds, while nothing in here runs. A gap between writes that falls into such a time is not the cluster's.
//!
//! On each processor a process that goes before all others wakes up all the time, and notes when it was late.

use std::{
    fs::{self, File},
    io::Read as _,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    seen::milliseconds,
    writer::{NOTABLE, Written},
};

/// Between two looks.
const TICK: Duration = Duration::from_millis(2);
/// Who goes before all others is not later than that where there is a processor.
const LATE: Duration = Duration::from_millis(3);

pub struct Metronome {
    children: Vec<Child>,
    folder: tempfile::TempDir,
}

/// From when to when, in milliseconds, one after the other.
#[derive(Debug, Default)]
pub struct Pauses(Vec<(f64, f64)>);

impl Metronome {
    pub fn start() -> Result<Self> {
        let mut metronome = Self { children: Vec::new(), folder: tempfile::tempdir()? };
        for processor in 0..thread::available_parallelism()?.get() {
            let processor = processor.to_string();
            let mut command = Command::new("chrt");
            command.args(["--fifo", "99", "taskset", "--cpu-list", &processor]).arg(std::env::current_exe()?);
            let noted = File::create(metronome.folder.path().join(&processor))?;
            let child = command.arg("metronome").stdin(Stdio::piped()).stdout(noted).spawn();
            metronome.children.push(child.context("cannot run chrt")?);
        }
        Ok(metronome)
    }

    pub fn stop(mut self) -> Result<Pauses> {
        for child in &mut self.children {
            drop(child.stdin.take());
            ensure!(child.wait()?.success(), "no process that goes before all others could be had");
        }
        let mut pauses = Vec::new();
        for file in fs::read_dir(self.folder.path())? {
            read(&file?.path(), &mut pauses)?;
        }
        Ok(Pauses::of(pauses))
    }
}

impl Drop for Metronome {
    fn drop(&mut self) {
        for child in &mut self.children {
            // It may have ended by itself.
            let _ = child.kill().and_then(|()| child.wait());
        }
    }
}

fn read(path: &Path, pauses: &mut Vec<(f64, f64)>) -> Result<()> {
    for line in fs::read_to_string(path)?.lines() {
        let (begin, end) = line.split_once(' ').context("a pause has a begin and an end")?;
        pauses.push((begin.parse()?, end.parse()?));
    }
    Ok(())
}

/// What that process does until nobody holds its standard input any more.
pub fn tick() -> Result<()> {
    thread::spawn(|| {
        // Whatever comes, it is over.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    loop {
        let due = Instant::now() + TICK;
        thread::sleep(TICK);
        let late = due.elapsed();
        if late > LATE {
            let end = milliseconds(SystemTime::now().duration_since(UNIX_EPOCH)?);
            println!("{} {end}", end - milliseconds(late));
        }
    }
}

impl Pauses {
    /// Those of several processors as one list.
    fn of(mut pauses: Vec<(f64, f64)>) -> Self {
        pauses.sort_by(|one, other| one.0.total_cmp(&other.0));
        let mut joined: Vec<(f64, f64)> = Vec::new();
        for (begin, end) in pauses {
            match joined.last_mut() {
                Some(last) if begin <= last.1 => last.1 = last.1.max(end),
                _ => joined.push((begin, end)),
            }
        }
        Self(joined)
    }

    fn within(&self, begin: f64, end: f64) -> f64 {
        self.0.iter().map(|pause| (pause.1.min(end) - pause.0.max(begin)).max(0.0)).sum()
    }

    /// How much of a gap that ended then is left, in milliseconds.
    pub fn left_of(&self, end: SystemTime, gap: Duration) -> f64 {
        let end = milliseconds(end.duration_since(UNIX_EPOCH).unwrap_or_default());
        let gap = milliseconds(gap);
        (gap - self.within(end - gap, end)).max(0.0)
    }

    /// What is left of the longest gap, in milliseconds. Of those that are not notable nobody knows when they were.
    pub fn left_of_longest(&self, written: &Written) -> f64 {
        let short = milliseconds(written.longest.min(NOTABLE));
        written.gaps.iter().map(|(end, gap)| self.left_of(*end, *gap)).fold(short, f64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_processors_miss_at_once_counts_once() {
        let pauses = Pauses::of(vec![(10.0, 30.0), (100.0, 120.0), (20.0, 40.0)]);
        let left =
            |end: u64, gap: u64| pauses.left_of(UNIX_EPOCH + Duration::from_millis(end), Duration::from_millis(gap));
        assert_eq!([left(50, 45), left(25, 10), left(90, 45), left(125, 50)], [15.0, 0.0, 45.0, 30.0]);
        let written = Written {
            longest: Duration::from_millis(50),
            gaps: vec![(UNIX_EPOCH + Duration::from_millis(50), Duration::from_millis(45))],
            ..Written::default()
        };
        assert_eq!(pauses.left_of_longest(&written), 30.0);
        assert_eq!(Pauses::default().left_of_longest(&written), 45.0);
    }
}
