//! Hypervisors that were emptied, and who lived there: `.etcdrun/drained.json`.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use super::{StateError, StateFolder, make_folder, write_private};

/// Which hypervisors take no members for now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// By hypervisor, the members that went, under the names that they have now.
    hypervisors: BTreeMap<String, Vec<Gone>>,
    /// Those of them that take members again, although not all are back.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    open: BTreeSet<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gone {
    pub cluster: String,
    pub member: String,
}

impl Drained {
    fn path(state: &StateFolder) -> PathBuf {
        state.path().join("drained.json")
    }

    pub fn load(state: &StateFolder) -> Result<Self, StateError> {
        let path = Self::path(state);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| StateError::Damaged {
                path,
                line: error.line(),
                problem: error.to_string(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(StateError::io(path, &error)),
        }
    }

    pub fn keep(&self, state: &StateFolder) -> Result<(), StateError> {
        make_folder(state.path(), state.path())?;
        let path = Self::path(state);
        let text = serde_json::to_vec_pretty(self).map_err(|error| StateError::io(&path, &error.into()))?;
        write_private(&path, &text)
    }

    pub fn has(&self, hypervisor: &str) -> bool {
        self.hypervisors.contains_key(hypervisor) && !self.open.contains(hypervisor)
    }

    pub fn mark(&mut self, hypervisor: &str) {
        self.open.remove(hypervisor);
        self.hypervisors.entry(hypervisor.to_owned()).or_default();
    }

    pub fn note(&mut self, hypervisor: &str, gone: Gone) {
        let all = self.hypervisors.entry(hypervisor.to_owned()).or_default();
        if !all.contains(&gone) {
            all.push(gone);
        }
    }

    /// Does not know of some any more.
    pub fn forget(&mut self, hypervisor: &str, which: impl Fn(&Gone) -> bool) {
        self.hypervisors.entry(hypervisor.to_owned()).or_default().retain(|gone| !which(gone));
    }

    /// It takes members again. Who lived there, if it was drained.
    pub fn open(&mut self, hypervisor: &str) -> Option<Vec<Gone>> {
        let gone = self.hypervisors.get(hypervisor).cloned()?;
        self.open.insert(hypervisor.to_owned());
        Some(gone)
    }

    /// Nobody who lived there is missed.
    pub fn clear(&mut self, hypervisor: &str) {
        self.hypervisors.remove(hypervisor);
        self.open.remove(hypervisor);
    }
}
