//! What is kept of a campaign: a line for each operation, so that it can be stopped and continued, and a table of all of them.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::{fault::Fault, operation::Kind, row::Row, world::Meanwhile};

/// The file of lines.
const FILE: &str = "steps.jsonl";

/// A fault, when it came, and to whom.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Happened {
    pub fault: Fault,
    /// The record of the journal behind which it came, and how many the operation has without a fault, as far as known.
    pub record: usize,
    pub of: usize,
    /// Milliseconds after that record.
    pub later: u64,
    /// The member, unless it is the operator.
    pub member: Option<String>,
    /// For how many seconds; without it, until the command had ended.
    pub seconds: Option<u64>,
    /// The command had ended before it came to that.
    pub came_too_late: bool,
    /// The command that it came in.
    #[serde(default)]
    pub command: String,
}

/// An operation in the life of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Step {
    pub seed: u64,
    pub number: usize,
    pub row: Row,
    pub operation: Kind,
    pub faults: Vec<Happened>,
    /// What the world did between a death and what followed it.
    pub meanwhile: Vec<Meanwhile>,
    /// How each command ended: the operation itself, then all that was needed to bring it to its end.
    pub codes: Vec<Option<i32>>,
    pub seconds: f64,
    /// A command was given up, and the operation begun anew.
    pub begun_anew: bool,
    pub violations: Vec<String>,
}

/// The verdict on the whole life of a cluster.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Life {
    pub seed: u64,
    pub row: Row,
    pub steps: usize,
    pub seconds: f64,
    /// Calls of clients that were answered.
    pub calls: u64,
    pub violations: Vec<String>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Line {
    Step(Step),
    Life(Life),
}

pub fn append(folder: &Path, line: &Line) -> Result<()> {
    let mut file = fs::File::options().create(true).append(true).open(folder.join(FILE))?;
    // In one piece, since several lanes write to it.
    file.write_all(format!("{}\n", serde_json::to_string(line)?).as_bytes())?;
    Ok(file.sync_all()?)
}

pub fn read(folder: &Path) -> Result<Vec<Line>> {
    let Ok(text) = fs::read_to_string(folder.join(FILE)) else { return Ok(Vec::new()) };
    // The last line of one that was killed may be cut off.
    Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
}

/// Where the evidence of a life is kept.
pub fn evidence(folder: &Path, seed: u64) -> PathBuf {
    folder.join(format!("life-{seed}"))
}
