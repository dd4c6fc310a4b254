//! Gives a change of members the inventory that it is decided on, and the playbook the files that it reads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    super::{CliError, Invocation, site::Files},
    Ground, Shared, VARIABLES,
};
use crate::{
    inventory::{Host, Inventory},
    membership::{self, Change, InventoryFile, Request, Situation},
    model::ValueMap,
};

/// What will be done.
pub struct Prepared {
    pub change: Change,
    /// Where the new member is.
    pub new_place: String,
    pub notes: Vec<String>,
    /// The files of the inventory, as they are during the change.
    pub files: Files,
}

/// What the playbook is told of all that it is to do, and reads instead of what is on the disk.
pub fn files(all: &[Prepared]) -> Files {
    let changes: ValueMap = all
        .iter()
        .map(|it| (it.change.player().to_owned(), serde_json::to_value(&it.change).unwrap_or_default()))
        .collect();
    let variables = serde_json::json!({ "changes": changes }).to_string();
    // Each was prepared upon those before it.
    let mut files = all.last().map(|last| last.files.clone()).unwrap_or_default();
    files.insert(PathBuf::from(VARIABLES), variables.into_bytes());
    files
}

pub fn prepare(
    ground: &Ground,
    request: &Request,
    situation: &Situation,
    shared: &Shared,
    invocation: &Invocation,
) -> Result<Prepared, CliError> {
    let known = membership::Ground {
        inventory: &ground.site.inventory,
        silent_hypervisors: &ground.silent_hypervisors,
        is_drained: &|hypervisor| ground.drained.has(hypervisor),
    };
    let prepared = membership::prepare(&known, request, situation, &Disk { ground, shared, invocation })?;
    let membership::Prepared { change, new_place, notes, path, during } = prepared;
    let mut files = ground.site.files.clone();
    files.insert(path, during.into_bytes());
    Ok(Prepared { change, new_place, notes, files })
}

/// The files of the inventory, on the disk or as earlier changes leave them.
struct Disk<'a> {
    ground: &'a Ground,
    shared: &'a Shared,
    invocation: &'a Invocation,
}

impl membership::Files for Disk<'_> {
    type Error = CliError;

    fn of(&self, host: &Host) -> InventoryFile {
        let site = &self.ground.site;
        let path = site.sources.path(host.span.file).to_owned();
        let text = match site.files.get(&path) {
            Some(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            None => fs::read_to_string(&path).unwrap_or_default(),
        };
        let is_generated = text != site.sources.text(host.span.file);
        InventoryFile { path, text, is_generated }
    }

    fn load(&self, path: &Path, text: &str) -> Result<Inventory, CliError> {
        let files = Files::from([(path.to_owned(), text.as_bytes().to_vec())]);
        Ok(self.ground.with_files(files, self.shared, self.invocation)?.site.inventory)
    }
}
