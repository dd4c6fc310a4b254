//! Secret: opens and seals what age encrypts.
//!
//! In: age files, armored or not, and the operator's keys: identities, SSH keys, a passphrase.
//! Out: plaintext in memory that is wiped when it is dropped, or new age files. Everything that is
//! opened for a run goes through `Keyring`. Never writes plaintext to a disk, never prints.

mod edit;
mod header;
mod identity;
mod keyring;
mod recipient;
mod seal;
mod yaml;

pub use edit::Draft;
pub use header::{Stanza, stanzas};
pub use keyring::{Ask, KeyOptions, Keyring};
pub use recipient::{RECIPIENTS_FILE, Recipients, find_recipients_file};
pub use seal::{Form, seal};
pub use yaml::{block, rewrite_values};
