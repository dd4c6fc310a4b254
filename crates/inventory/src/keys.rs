//! Private keys that the inventory names: they must be there before anyone connects.

use std::{fs::File, io, path::Path};

use super::types::{HostId, Inventory};
use crate::source::{Diagnostic, Diagnostics};

impl Inventory {
    /// Reports keys of these hosts that cannot be read.
    pub fn check_keys(&self, hosts: impl IntoIterator<Item = HostId>, diagnostics: &mut Diagnostics) {
        for host in hosts.into_iter().map(|host| self.host_by_id(host)) {
            for file in &host.endpoint.identity_files {
                if let Err(problem) = readable(file) {
                    let place = host.identity_place.unwrap_or(host.span);
                    let message = format!("the key {} {problem}", file.display());
                    let help = "name a private key that you can read, or remove `identity_file` to use ~/.ssh/config and the agent";
                    diagnostics.push(Diagnostic::error(place, message).help(help));
                }
            }
        }
    }
}

fn readable(path: &Path) -> Result<(), String> {
    match File::open(path).and_then(|file| file.metadata()) {
        Ok(metadata) if metadata.is_dir() => Err("is a directory".into()),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err("does not exist".into()),
        Err(error) => Err(format!("cannot be read: {error}")),
    }
}
