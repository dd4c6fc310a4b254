//! Gives a change of members the inventory that it is decided on, and the playbook the files that it reads.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{
    super::{CliError, Invocation, site::Files},
    Shared, Survey, VARIABLES,
};
use crate::{
    inventory::{Host, Inventory},
    membership::{self, InventoryFile, Prepared, Request, Situation},
    model::ValueMap,
};

/// What the playbook is to do, as it gets it, and reads instead of what is on the disk.
pub fn files(all: &[Prepared]) -> Files {
    let changes: ValueMap = all
        .iter()
        .map(|it| (it.change.player().to_owned(), serde_json::to_value(&it.change).unwrap_or_default()))
        .collect();
    let variables = serde_json::json!({ "changes": changes }).to_string();
    // Each was prepared upon those before it, so the last text of a file has all changes.
    let mut files: Files = all.iter().map(Prepared::file).collect();
    files.insert(PathBuf::from(VARIABLES), variables.into_bytes());
    files
}

pub fn prepare(
    survey: &Survey,
    request: &Request,
    situation: &Situation,
    shared: &Shared,
    invocation: &Invocation,
) -> Result<Prepared, CliError> {
    let ground = membership::Ground {
        inventory: &survey.site.inventory,
        silent_hypervisors: &survey.silent_hypervisors,
        is_drained: &|hypervisor| survey.drained.has(hypervisor),
    };
    membership::prepare(&ground, request, situation, &Disk { survey, shared, invocation })
}

/// The files of the inventory, on the disk or as earlier changes leave them.
struct Disk<'a> {
    survey: &'a Survey,
    shared: &'a Shared,
    invocation: &'a Invocation,
}

impl membership::Files for Disk<'_> {
    type Error = CliError;

    fn of(&self, host: &Host) -> InventoryFile {
        let site = &self.survey.site;
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
        Ok(self.survey.with_files(files, self.shared, self.invocation)?.site.inventory)
    }
}
