//! What can be wrong with the state folder.

use std::{
    io,
    path::{Path, PathBuf},
};

use crate::source::distrust;

#[derive(Clone, Debug, thiserror::Error)]
pub enum StateError {
    #[error("{}: {problem}", path.display())]
    Disk { path: PathBuf, problem: String, full: bool },
    /// Lines before `line` are whole.
    #[error("{}: line {line} is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, line: usize, problem: String },
    #[error("cannot trust {}: {problem}", path.display())]
    Stranger { path: PathBuf, problem: String },
    #[error("the plan {}: {problem}", path.display())]
    Plan { path: PathBuf, problem: String },
    #[error("there is no run `{0}`")]
    NoRun(String),
    #[error("there is no run that could be resumed")]
    NothingUnfinished,
    #[error("`{0}` could be any of: {1}")]
    Ambiguous(String, String),
    #[error("run {0} is active")]
    Running(String),
    #[error("run {0} cannot be resumed: {1}")]
    NotResumable(String, String),
}

impl StateError {
    pub fn io(path: impl Into<PathBuf>, error: &io::Error) -> Self {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        Self::Disk { path: path.into(), problem: error.to_string(), full }
    }

    /// Refuses what somebody else has written, or could have.
    pub fn unless_trusted(path: &Path) -> Result<(), Self> {
        match distrust(path) {
            None => Ok(()),
            Some(problem) => Err(Self::Stranger { path: path.to_owned(), problem }),
        }
    }

    /// What the operator can do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Disk { full: true, .. } => {
                Some("free some space (`etcdrun runs prune` deletes old runs), then run `etcdrun resume`".to_owned())
            }
            Self::Disk { .. } => Some("name another state directory with `--state-dir`".to_owned()),
            Self::Damaged { path, line, .. } => Some(format!(
                "lines 1 to {} of {} can be read; restore the file from a copy, or run the playbook again",
                line - 1,
                path.display()
            )),
            Self::NoRun(_) | Self::NothingUnfinished | Self::Ambiguous(..) => {
                Some("`etcdrun runs` lists them".to_owned())
            }
            Self::Running(_) => Some("wait for it, or end it".to_owned()),
            Self::Stranger { path, .. } => Some(format!(
                "it decides what etcdrun runs; if you trust it, make it yours: `chown -R $USER {0}`, then `chmod -R go-rwx {0}`",
                path.display()
            )),
            Self::Plan { .. } => Some("create a new one with `etcdrun plan FILE --out PLAN`".to_owned()),
            Self::NotResumable(..) => None,
        }
    }
}
