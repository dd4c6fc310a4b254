//! What can be wrong with keys and certificates.

/// A problem, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct PkiError {
    pub message: String,
    pub help: Option<String>,
}

impl PkiError {
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), help: None }
    }

    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

impl From<rcgen::Error> for PkiError {
    fn from(error: rcgen::Error) -> Self {
        Self::new(error.to_string())
    }
}

impl From<crate::state_folder::StateError> for PkiError {
    fn from(error: crate::state_folder::StateError) -> Self {
        Self { message: error.to_string(), help: error.help() }
    }
}
