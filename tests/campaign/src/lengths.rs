//! How many records the journal of a command has, so that faults come at moments that are spread evenly over it.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::Result;

/// What a command has that was never seen without a fault. Of one that was seen with three members, about half depends on their number.
const UNKNOWN: usize = 60;
const FILE: &str = "lengths.json";

/// By command and number of members. The moments of a seed must not depend on what was played before, so what is used stays as it is;
/// what is learnt is for the file in the source.
pub struct Lengths {
    known: BTreeMap<String, usize>,
    learnt: BTreeMap<String, usize>,
}

impl Lengths {
    pub fn new() -> Result<Self> {
        Ok(Self { known: serde_json::from_str(include_str!("lengths.json"))?, learnt: BTreeMap::new() })
    }

    pub fn of(&self, command: &str, members: usize) -> usize {
        let of_three = || self.known.get(&key(command, 3)).map(|records| records * (members + 2) / 5);
        self.known.get(&key(command, members)).copied().or_else(of_three).unwrap_or(UNKNOWN)
    }

    pub fn learn(&mut self, command: &str, members: usize, records: usize) {
        self.learnt.insert(key(command, members), records);
    }

    pub fn save(&self, folder: &Path) -> Result<()> {
        let all: BTreeMap<&String, &usize> = self.known.iter().chain(&self.learnt).collect();
        Ok(fs::write(folder.join(FILE), serde_json::to_vec_pretty(&all)?)?)
    }
}

fn key(command: &str, members: usize) -> String {
    format!("{command} of {members}")
}
