//! What is encrypted, and who can open it.

use zeroize::Zeroizing;

/// The tag of an encrypted value, as it is written in YAML.
pub const AGE_TAG: &str = "!age";

/// The tag of a value that was encrypted. No YAML can say it, because of the blank.
pub(super) const OPENED_TAG: &str = "!age opened";

const BINARY: &[u8] = b"age-encryption.org/";
const ARMORED: &[u8] = b"-----BEGIN AGE ENCRYPTED FILE-----";

/// Whether this is what age writes, armored or not.
pub fn is_sealed(bytes: &[u8]) -> bool {
    bytes.starts_with(BINARY) || bytes.trim_ascii_start().starts_with(ARMORED)
}

/// Opens what is encrypted. Commands that run something bring one that may ask for a passphrase.
pub trait Opener: Send + Sync {
    fn open(&self, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, OpenError>;

    /// Opens what is too large for memory, as it is read. What comes is right only once its end has come.
    fn open_stream(&self, sealed: Box<dyn std::io::Read + Send>) -> Result<Box<dyn std::io::Read + Send>, OpenError> {
        let _ = sealed;
        Err(OpenError::new("there is no key here that decrypts it", "name one with --age-identity"))
    }

    /// The recipient that the operator's own key is, for what only they have to open; made if there is none.
    fn own_recipient(&self) -> Result<Option<String>, OpenError> {
        Ok(None)
    }
}

/// Why something stays shut, and the way out.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct OpenError {
    pub message: String,
    pub help: Option<String>,
}

impl OpenError {
    pub fn new(message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { message: message.into(), help: Some(help.into()) }
    }
}

/// The same lines and offsets without the text, to point into what must not be shown.
pub(super) fn blanked(text: &str) -> String {
    text.bytes().map(|byte| if byte == b'\n' { '\n' } else { ' ' }).collect()
}
