//! What a command knows before it runs anything: the inventory, the state directory, and from there the way to the hosts.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use super::{
    CliError, Invocation,
    args::{ConnectionArgs, KnownArgs},
    input::{Input, Opening},
    record::state_folder,
    visit::Hosts,
};
use crate::{
    inventory::{HostId, Inventory},
    source::{Sources, disk},
    state::StateFolder,
};

/// Files that are read instead of what is on the disk.
pub type Files = BTreeMap<PathBuf, Vec<u8>>;

pub struct Site {
    pub inventory: Inventory,
    pub sources: Sources,
    pub state: StateFolder,
    /// What it was loaded from that is not on the disk.
    pub files: Files,
}

impl Site {
    /// For a command that works with secrets or hosts.
    pub fn load(args: &KnownArgs, state_dir: Option<&Path>, invocation: &Invocation) -> Result<Self, CliError> {
        Self::load_as_if(Files::new(), Opening::All, args, state_dir, invocation)
    }

    /// The same, as if these were files on the disk.
    pub fn load_as_if(
        files: Files,
        opening: Opening,
        args: &KnownArgs,
        state_dir: Option<&Path>,
        invocation: &Invocation,
    ) -> Result<Self, CliError> {
        let load = || {
            let mut input = Input::new(&args.keys, opening, invocation);
            let inventory = input.inventory(args, invocation);
            (input, inventory)
        };
        // A run that is resumed has the inventory that it began with.
        let ((mut input, inventory), _) = disk::pretend(files.clone(), || invocation.loading(load));
        // Warnings about the files on the disk were shown when these were loaded alone.
        if files.is_empty() || input.diagnostics.has_errors() {
            input.check(invocation)?;
        }
        let state = state_folder(state_dir, &input.inventories, invocation);
        Ok(Self { inventory, sources: input.sources, state, files })
    }

    /// The hosts of `--limit`, if it is given.
    pub fn select(&mut self, limit: Option<&str>, invocation: &Invocation) -> Result<Option<Vec<HostId>>, CliError> {
        let mut input = Input { sources: std::mem::take(&mut self.sources), ..Input::default() };
        let limit = input.limit(limit, &self.inventory);
        input.check(invocation)?;
        self.sources = input.sources;
        Ok(limit.and_then(|limit| self.inventory.select(&limit).ok()))
    }

    pub fn connect(&self, connection: &ConnectionArgs, invocation: &Invocation) -> Result<Hosts, CliError> {
        Hosts::new(self, connection, invocation)
    }
}
