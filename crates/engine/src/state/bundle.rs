//! What a run was loaded from: enough to compile the same graph again without a look at the disk.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{StateError, StateFolder, sync_folder, write_private};
use crate::source::disk::{Answers, Inputs, sum};

const FILE: &str = "bundle.json";

/// The command line and everything that loading it asked of the disk.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Bundle {
    /// The version of etcdrun. Another one may compile the same texts to another graph.
    pub etcdrun: String,
    pub command: Vec<String>,
    /// The folder it was called in.
    pub folder: PathBuf,
    /// Settings of etcdrun.toml and variables, as they were.
    pub settings: serde_json::Value,
    answers: BTreeMap<PathBuf, Answers>,
}

impl Bundle {
    pub fn new(command: Vec<String>, folder: PathBuf, settings: serde_json::Value, inputs: &Inputs) -> Self {
        let etcdrun = env!("CARGO_PKG_VERSION").to_owned();
        Self { etcdrun, command, folder, settings, answers: inputs.answers.clone() }
    }

    /// Puts the texts among the objects, then the bundle into the run's folder.
    pub(super) fn save(&self, inputs: &Inputs, state: &StateFolder, run: &Path) -> Result<(), StateError> {
        let objects = state.objects();
        for (sum, bytes) in &inputs.contents {
            let path = objects.join(sum);
            if !path.exists() {
                write_private(&path, bytes)?;
            }
        }
        sync_folder(&objects).map_err(|error| StateError::io(&objects, &error))?;
        let text = serde_json::to_vec(self).map_err(|error| StateError::io(run, &error.into()))?;
        write_private(&run.join(FILE), &text)
    }

    pub(super) fn read(run: &Path) -> Result<Self, StateError> {
        let path = run.join(FILE);
        let bytes = fs::read(&path).map_err(|error| StateError::io(&path, &error))?;
        serde_json::from_slice(&bytes).map_err(|error| damaged(&path, error.to_string()))
    }

    /// Everything that loading asks for.
    pub fn inputs(&self, state: &StateFolder) -> Result<Inputs, StateError> {
        let mut inputs = Inputs { answers: self.answers.clone(), ..Inputs::default() };
        for name in self.sums() {
            let path = state.objects().join(&name);
            let bytes = fs::read(&path).map_err(|error| StateError::io(&path, &error))?;
            if sum(&bytes) != name {
                return Err(damaged(&path, "its content does not match its name".to_owned()));
            }
            inputs.contents.insert(name, bytes);
        }
        Ok(inputs)
    }

    pub(super) fn answers(&self) -> &BTreeMap<PathBuf, Answers> {
        &self.answers
    }

    pub(super) fn sums(&self) -> BTreeSet<String> {
        self.answers.values().flat_map(Answers::sums).map(str::to_owned).collect()
    }
}

fn damaged(path: &Path, problem: String) -> StateError {
    StateError::Damaged { path: path.to_owned(), line: 1, problem }
}
