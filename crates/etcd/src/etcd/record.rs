//! What is known here of a cluster that was formed: so that nobody forms it a second time.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::state_folder::{StateError, make_folder, write_private};

/// `.etcdrun/clusters/NAME.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterRecord {
    pub phase: Phase,
    /// What tells this cluster from others while it forms.
    pub token: String,
    /// The members it is formed from.
    pub members: Vec<String>,
    /// In hexadecimal, once it is known.
    pub cluster_id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// All data folders were seen empty, and members may have been started.
    Forming,
    /// Every member has answered.
    Formed,
}

impl ClusterRecord {
    fn path(state: &Path, cluster: &str) -> PathBuf {
        state.join("clusters").join(format!("{cluster}.json"))
    }

    pub fn load(state: &Path, cluster: &str) -> Result<Option<Self>, StateError> {
        let path = Self::path(state, cluster);
        match fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| StateError::Damaged {
                path,
                line: error.line(),
                problem: error.to_string(),
            }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(StateError::io(path, &error)),
        }
    }

    /// It stays, also when the machine fails right after.
    pub fn keep(&self, state: &Path, cluster: &str) -> Result<(), StateError> {
        let path = Self::path(state, cluster);
        make_folder(state, &state.join("clusters"))?;
        let text = serde_json::to_vec_pretty(self).map_err(|error| StateError::io(&path, &error.into()))?;
        write_private(&path, &text)
    }
}

/// How long turns take, as far as it was seen: `.etcdrun/clusters/NAME.turns`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TurnRecord {
    /// The longest turn of the last rollout that changed something, in seconds.
    pub longest: f64,
}

impl TurnRecord {
    fn path(state: &Path, cluster: &str) -> PathBuf {
        state.join("clusters").join(format!("{cluster}.turns"))
    }

    /// One that is not there, or damaged, only costs an estimate.
    pub fn load(state: &Path, cluster: &str) -> Option<Self> {
        serde_json::from_slice(&fs::read(Self::path(state, cluster)).ok()?).ok()
    }

    pub fn keep(self, state: &Path, cluster: &str) -> Result<(), StateError> {
        let path = Self::path(state, cluster);
        let text = serde_json::to_vec(&self).map_err(|error| StateError::io(&path, &error.into()))?;
        write_private(&path, &text)
    }
}
