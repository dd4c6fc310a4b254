//! Hypervisors that were emptied, and who lived there: `.etcdrun/drained.json`.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder},
    io,
    os::unix::fs::DirBuilderExt,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use super::{StateError, StateFolder, write_private};

/// Which hypervisors take no members for now.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Drained {
    /// By hypervisor, the members that went, under the names that they have now.
    hypervisors: BTreeMap<String, Vec<Gone>>,
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
        let made = DirBuilder::new().recursive(true).mode(0o700).create(state.path());
        made.map_err(|error| StateError::io(state.path(), &error))?;
        let path = Self::path(state);
        let text = serde_json::to_vec_pretty(self).map_err(|error| StateError::io(&path, &error.into()))?;
        write_private(&path, &text)
    }

    pub fn has(&self, hypervisor: &str) -> bool {
        self.hypervisors.contains_key(hypervisor)
    }

    pub fn mark(&mut self, hypervisor: &str) {
        self.hypervisors.entry(hypervisor.to_owned()).or_default();
    }

    pub fn note(&mut self, hypervisor: &str, gone: Gone) {
        self.hypervisors.entry(hypervisor.to_owned()).or_default().push(gone);
    }

    /// Who lived there, if it was drained; it takes members again.
    pub fn clear(&mut self, hypervisor: &str) -> Option<Vec<Gone>> {
        self.hypervisors.remove(hypervisor)
    }
}
