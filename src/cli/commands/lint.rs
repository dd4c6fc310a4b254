//! `etcdrun lint [FILE...]`: finds everything that is wrong, without connecting.

use std::path::Path;

use clap::Args;

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{InventoryArgs, VarsArgs},
    input::{Input, Opening},
    run::load_options,
};
use crate::{
    LIBRARY,
    compile::{self, Selection},
    playbook::{LoadOptions, Playbook},
};

#[derive(Args, Debug)]
pub struct LintArgs {
    /// Playbooks; without any, all of ./playbooks
    #[arg(value_name = "FILE")]
    playbooks: Vec<String>,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    vars: VarsArgs,
}

pub fn run(args: &LintArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let mut input = Input::new(&args.inventory.known.keys, Opening::FilesOnly, invocation);
    input.extra_vars(&args.vars);
    let inventory = input.inventory(&args.inventory.known, invocation);
    let limit = input.limit(args.inventory.only.limit.as_deref(), &inventory);
    let load = LoadOptions { extra_vars: input.extra_vars.clone(), ..load_options(invocation) };
    // A broken inventory would make every pattern look wrong.
    let whole = !input.diagnostics.has_errors();
    let names = if args.playbooks.is_empty() { all_playbooks()? } else { args.playbooks.clone() };
    let playbooks: Vec<Playbook> = names.iter().filter_map(|name| input.playbook(name, &load)).collect();
    for playbook in playbooks.iter().filter(|_| whole) {
        input.compile(&inventory, playbook, limit.as_ref(), &Selection::default());
    }
    if names.is_empty() && whole {
        compile::missing(&LIBRARY, &inventory).into_iter().for_each(|warning| input.diagnostics.push(warning));
    }
    let clean = input.diagnostics.is_empty();
    input.check(invocation)?;
    if clean && !invocation.json {
        let text = match names.len() {
            0 => {
                "no problems found in the inventory; no playbooks were named, and there is no ./playbooks\n".to_owned()
            }
            1 => "no problems found in 1 playbook\n".to_owned(),
            several => format!("no problems found in {several} playbooks\n"),
        };
        invocation.print(&text)?;
    }
    Ok(Exit::Success)
}

fn all_playbooks() -> Result<Vec<String>, CliError> {
    let folder = Path::new("playbooks");
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut names = Vec::new();
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.is_file() && path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml") {
            names.push(path.display().to_string());
        }
    }
    names.sort();
    Ok(names)
}
