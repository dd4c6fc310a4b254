//! What other machines on the same hardware took of this one's processors. A gap may be theirs, so a run in which they took much
//! is not counted, whatever came of it, and another one takes its place.

use std::fs;

use anyhow::{Context as _, Result, ensure};

/// Where the field stands in the first line of `/proc/stat`, behind its name.
const STEAL: usize = 7;
/// Those behind it are counted before it already.
const FIELDS: usize = 8;
/// Of all processors, in percent. One of two that is gone for a second in half a minute.
const MUCH: f64 = 2.0;

/// Since the machine was started, in ticks.
pub struct Ticks {
    taken: f64,
    all: f64,
}

impl Ticks {
    pub fn now() -> Result<Self> {
        let text = fs::read_to_string("/proc/stat")?;
        let line = text.lines().next().context("/proc/stat is empty")?;
        let fields: Vec<f64> =
            line.split_whitespace().skip(1).take(FIELDS).filter_map(|word| word.parse().ok()).collect();
        Ok(Self { taken: fields.get(STEAL).copied().context("/proc/stat has no steal")?, all: fields.iter().sum() })
    }

    /// The part that others took since then, in percent.
    pub fn percent_since(&self) -> Result<f64> {
        let now = Self::now()?;
        Ok((now.taken - self.taken) / (now.all - self.all).max(1.0) * 100.0)
    }
}

/// Whether a run in which others took so much says nothing.
pub fn is_much(percent: f64) -> bool {
    percent > MUCH
}

/// Runs that count, and how many did not.
pub struct Counted<T> {
    pub runs: Vec<T>,
    pub disturbed: usize,
}

/// So many runs that were left alone. It gives up when more than as many were not.
pub fn left_alone<T>(
    wanted: usize,
    taken: impl Fn(&T) -> f64,
    mut run: impl FnMut(usize) -> Result<T>,
) -> Result<Counted<T>> {
    let mut counted = Counted { runs: Vec::new(), disturbed: 0 };
    while counted.runs.len() < wanted {
        let came = run(counted.runs.len() + 1)?;
        if !is_much(taken(&came)) {
            counted.runs.push(came);
            continue;
        }
        eprintln!("    not counted: other machines took {:.0}% of the processors", taken(&came));
        counted.disturbed += 1;
        ensure!(counted.disturbed <= wanted, "other machines take too much of the processors to measure anything");
    }
    Ok(counted)
}
