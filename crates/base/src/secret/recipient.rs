//! To whom something is encrypted.

use std::path::{Path, PathBuf};

use age::{ssh, x25519};

/// The file that names a folder's recipients, one a line; `#` starts a comment. It holds for all
/// folders below, up to the next such file.
pub const RECIPIENTS_FILE: &str = ".age-recipients";

/// Public keys, or a passphrase; age does not mix the two.
pub enum Recipients {
    Keys(Vec<Box<dyn age::Recipient + Send>>),
    Passphrase(age::secrecy::SecretString),
}

impl Recipients {
    /// Parses `age1...` and `ssh-... ...`. The error names the line that is neither.
    pub fn parse<'l>(lines: impl IntoIterator<Item = &'l str>) -> Result<Self, String> {
        let lines = lines.into_iter().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        lines.map(recipient).collect::<Result<Vec<_>, _>>().map(Self::Keys)
    }

    /// How many stanzas they make; nothing for a passphrase.
    pub fn count(&self) -> Option<usize> {
        match self {
            Self::Keys(keys) => Some(keys.len()),
            Self::Passphrase(_) => None,
        }
    }
}

fn recipient(line: &str) -> Result<Box<dyn age::Recipient + Send>, String> {
    if let Ok(key) = line.parse::<x25519::Recipient>() {
        return Ok(Box::new(key));
    }
    if let Ok(key) = line.parse::<ssh::Recipient>() {
        return Ok(Box::new(key));
    }
    // An identity in the place of a recipient must not be repeated on a screen.
    match line.starts_with("AGE-SECRET-KEY") {
        true => Err("expected a recipient, found a secret identity; `age-keygen -y FILE` prints the recipient".into()),
        false => Err(format!("`{line}` is not a recipient: those start with age1, ssh-ed25519 or ssh-rsa")),
    }
}

/// The nearest recipients file, from a folder upwards.
pub fn find_recipients_file(folder: &Path) -> Option<PathBuf> {
    let folder = std::path::absolute(folder).ok()?;
    folder.ancestors().map(|folder| folder.join(RECIPIENTS_FILE)).find(|path| path.is_file())
}
