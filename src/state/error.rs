//! What can be wrong with the state folder.

use std::{io, path::PathBuf};

#[derive(Clone, Debug, thiserror::Error)]
pub enum StateError {
    #[error("{}: {problem}", path.display())]
    Disk { path: PathBuf, problem: String, full: bool },
    /// Lines before `line` are whole.
    #[error("{}: line {line} is damaged: {problem}", path.display())]
    Damaged { path: PathBuf, line: usize, problem: String },
    #[error("the plan {}: {problem}", path.display())]
    Plan { path: PathBuf, problem: String },
    #[error("there is no run `{0}`")]
    NoRun(String),
    #[error("there is no run that could be resumed")]
    NothingUnfinished,
    #[error("`{0}` could be any of: {1}")]
    Ambiguous(String, String),
    #[error("run {0} is going on right now")]
    Running(String),
    #[error("run {0} cannot be resumed: {1}")]
    NotResumable(String, String),
}

impl StateError {
    pub fn io(path: impl Into<PathBuf>, error: &io::Error) -> Self {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        Self::Disk { path: path.into(), problem: error.to_string(), full }
    }

    /// What the operator can do about it.
    pub fn help(&self) -> Option<String> {
        match self {
            Self::Disk { full: true, .. } => {
                Some("free some space (`etcdrun runs prune` removes old runs), then `etcdrun resume`".to_owned())
            }
            Self::Disk { .. } => Some("`--state-dir` names another folder to keep runs in".to_owned()),
            Self::Damaged { path, line, .. } => Some(format!(
                "lines 1 to {} of {} can be read; put the file back from a copy, or run the playbook again",
                line - 1,
                path.display()
            )),
            Self::NoRun(_) | Self::NothingUnfinished | Self::Ambiguous(..) => {
                Some("`etcdrun runs` lists them".to_owned())
            }
            Self::Running(_) => Some("wait for it, or end it".to_owned()),
            Self::Plan { .. } => Some("`etcdrun plan FILE --out PLAN` makes a new one".to_owned()),
            Self::NotResumable(..) => None,
        }
    }
}
