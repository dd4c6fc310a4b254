//! Loads what commands work on, and gathers every problem on the way, so that all are told at once.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{
    CliError, Invocation,
    args::{InventoryArgs, KeyArgs, KnownArgs, SelectionArgs, VarsArgs},
    vars::parse_extra_vars,
};
use crate::{
    LIBRARY,
    compile::{CompileOptions, Selection, compile},
    graph::Graph,
    inventory::{Inventory, Pattern},
    model::Span,
    playbook::{self, LoadOptions, Playbook},
    source::{
        Diagnostic, Diagnostics, Sources, Vars,
        disk::{self, Inputs},
    },
};

/// What is tried where no inventory is named.
const DEFAULT_INVENTORIES: [&str; 3] = ["inventory", "inventory.yaml", "inventory.yml"];

/// What is opened of what is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opening {
    /// All of it: for what runs. May ask for a passphrase.
    All,
    /// Files of variables, because their names must be known, if that needs no question. Values stay
    /// shut: nothing else needs them.
    FilesOnly,
}

/// Everything read so far, and everything that is wrong with it.
#[derive(Default)]
pub struct Input {
    pub sources: Sources,
    pub diagnostics: Diagnostics,
    pub extra_vars: Arc<Vars>,
    /// The inventories that were read.
    pub inventories: Vec<PathBuf>,
}

impl Input {
    pub fn new(keys: &KeyArgs, opening: Opening, invocation: &Invocation) -> Self {
        let masker = invocation.masker.clone();
        let keyring = Arc::new(invocation.keyring(keys, opening == Opening::All));
        let sources = match opening {
            Opening::All => Sources::opening(keyring, masker),
            Opening::FilesOnly => Sources::opening_files(keyring, masker),
        };
        Self { sources, diagnostics: Diagnostics::default(), extra_vars: Arc::default(), inventories: Vec::new() }
    }

    pub fn extra_vars(&mut self, args: &VarsArgs) {
        self.extra_vars = Arc::new(parse_extra_vars(&args.extra_vars, &mut self.sources, &mut self.diagnostics));
    }

    /// The one loader of inventories; `Site` is this for commands that compile nothing.
    pub fn inventory(&mut self, args: &KnownArgs, invocation: &Invocation) -> Inventory {
        let paths = inventory_paths(&args.inventory, invocation);
        self.inventories.clone_from(&paths);
        if paths.is_empty() {
            let help =
                "name one with -i, in etcdrun.toml or in ETCDRUN_INVENTORY, or create a directory `inventory` here";
            self.diagnostics.push(Diagnostic::error(None, "there is no inventory").help(help));
        }
        crate::etcd::load_inventory(&paths, &mut self.sources, &mut self.diagnostics)
    }

    /// The limit's pattern, which has the command line as its source.
    pub fn limit(&mut self, limit: Option<&str>, inventory: &Inventory) -> Option<Pattern> {
        let text = limit?;
        let file = self.sources.add("--limit", text);
        let parsed = Pattern::parse_limit(text, Span::new(file, 0, text.len()), &mut self.sources);
        let checked = parsed.map_err(|problem| vec![problem]).and_then(|limit| inventory.select(&limit).map(|_| limit));
        checked.map_err(|problems| problems.into_iter().for_each(|problem| self.diagnostics.push(problem))).ok()
    }

    pub fn playbook(&mut self, name: &str, options: &LoadOptions) -> Option<Playbook> {
        match playbook::find(name, Path::new(""), LIBRARY.embedded) {
            Ok(source) => {
                let options = LoadOptions { embedded_roles_only: playbook::is_embedded_name(name), ..options.clone() };
                let loaded = playbook::load(&source, &options, &mut self.sources, &mut self.diagnostics);
                playbook::hidden(name, &source, LIBRARY.embedded)
                    .into_iter()
                    .for_each(|warning| self.diagnostics.push(warning));
                Some(loaded)
            }
            Err(problem) => {
                self.diagnostics.push(problem);
                None
            }
        }
    }

    /// Compiles. Of a broken playbook only what is sure is told: one mistake must not be told as ten.
    pub fn compile(
        &mut self,
        inventory: &Inventory,
        playbook: &Playbook,
        limit: Option<&Pattern>,
        selection: &Selection,
    ) -> Option<Graph> {
        let options =
            CompileOptions { limit: limit.cloned(), selection: selection.clone(), extra_vars: self.extra_vars.clone() };
        let mut found = Diagnostics::default();
        let graph = compile(inventory, playbook, &options, &mut self.sources, &mut found);
        self.diagnostics.extend(found);
        graph
    }

    /// Ends here if anything is wrong; tells warnings and goes on otherwise.
    pub fn check(&mut self, invocation: &Invocation) -> Result<(), CliError> {
        let diagnostics = std::mem::take(&mut self.diagnostics);
        if diagnostics.has_errors() {
            return Err(CliError::Input(Box::new((diagnostics, std::mem::take(&mut self.sources)))));
        }
        invocation.show_problems(&diagnostics, &self.sources);
        Ok(())
    }
}

/// The inventories that are meant: those given, those configured, or the first of the usual ones.
pub fn inventory_paths(given: &[PathBuf], invocation: &Invocation) -> Vec<PathBuf> {
    let is_there = |path: &PathBuf| disk::find(path) != disk::Found::Absent;
    match (given, &invocation.settings.inventory) {
        (given, _) if !given.is_empty() => given.to_vec(),
        (_, configured) if !configured.is_empty() => configured.clone(),
        _ => DEFAULT_INVENTORIES.iter().map(PathBuf::from).filter(is_there).take(1).collect(),
    }
}

/// Playbooks compiled against one inventory.
pub struct Compiled {
    pub input: Input,
    /// What was asked of the disk to get here.
    pub inputs: Inputs,
    pub inventory: Inventory,
    pub graphs: Vec<Graph>,
}

/// Load and compile, or tell everything that is wrong.
pub fn compile_all(
    names: &[String],
    inventory_args: &InventoryArgs,
    selection: &SelectionArgs,
    load: &LoadOptions,
    opening: Opening,
    invocation: &Invocation,
) -> Result<Compiled, CliError> {
    let (loaded, inputs) = invocation.loading(|| load_all(names, inventory_args, selection, load, opening, invocation));
    let (mut input, inventory, graphs) = loaded;
    input.check(invocation)?;
    Ok(Compiled { input, inputs, inventory, graphs })
}

fn load_all(
    names: &[String],
    inventory_args: &InventoryArgs,
    selection: &SelectionArgs,
    load: &LoadOptions,
    opening: Opening,
    invocation: &Invocation,
) -> (Input, Inventory, Vec<Graph>) {
    let mut input = Input::new(&inventory_args.known.keys, opening, invocation);
    input.extra_vars(&selection.vars);
    let inventory = input.inventory(&inventory_args.known, invocation);
    let limit = input.limit(inventory_args.only.limit.as_deref(), &inventory);
    let load = LoadOptions { extra_vars: input.extra_vars.clone(), ..load.clone() };
    // A broken inventory would make every pattern look wrong.
    let whole = !input.diagnostics.has_errors();
    let playbooks: Vec<Playbook> = names.iter().filter_map(|name| input.playbook(name, &load)).collect();
    let wanted = wanted(selection);
    let mut graphs = Vec::new();
    for playbook in playbooks.iter().filter(|_| whole) {
        graphs.extend(input.compile(&inventory, playbook, limit.as_ref(), &wanted));
    }
    (input, inventory, graphs)
}

fn wanted(args: &SelectionArgs) -> Selection {
    Selection { tags: args.tags.clone(), skip_tags: args.skip_tags.clone(), start_at: args.start_at_task.clone() }
}
