//! What other machines on the same hardware took of this one's processors: a gap may be theirs.

use std::fs;

use anyhow::{Context as _, Result};

/// Where the field stands in the first line of `/proc/stat`, behind its name.
const STEAL: usize = 7;
/// Those behind it are counted before it already.
const FIELDS: usize = 8;

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
