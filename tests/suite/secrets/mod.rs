//! Secrets: the verbs that tend them, and that none of them ever shows.
mod leaks;
mod opening;
mod verbs;

use age::{secrecy::ExposeSecret, x25519};
use etcdrun::secret::{Form, Recipients, block, seal};

use crate::support::program::Folder;

/// A folder with an identity in the usual place.
pub struct Keys {
    pub public: String,
    recipients: Recipients,
}

impl Keys {
    pub fn new(folder: &Folder) -> Self {
        Self::named(folder, ".config/etcdrun/identity")
    }

    pub fn named(folder: &Folder, name: &str) -> Self {
        let identity = x25519::Identity::generate();
        folder.write_private(name, &format!("# test\n{}\n", identity.to_string().expose_secret()));
        let public = identity.to_public().to_string();
        let recipients = Recipients::parse([public.as_str()]).unwrap();
        Self { public, recipients }
    }

    /// `!age |` and the lines of the value.
    pub fn value(&self, plain: &str, indent: usize) -> String {
        block(&self.armored(plain), indent)
    }

    pub fn armored(&self, plain: &str) -> String {
        String::from_utf8(seal(plain.as_bytes(), &self.recipients, Form::Armored).unwrap()).unwrap()
    }

    pub fn binary(&self, plain: &[u8]) -> Vec<u8> {
        seal(plain, &self.recipients, Form::Binary).unwrap()
    }
}
