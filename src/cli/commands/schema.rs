//! `etcdrun schema`: JSON Schemas, generated from the types that check the input.

use clap::Args;
use serde_json::{Map, Value, json};

use crate::cli::support::{CliError, Exit, Invocation, modules::find_module};
use crate::{LIBRARY, inventory, playbook, source::did_you_mean};

const NAMES: [&str; 5] = ["inventory", "playbook", "meta", "module", "all"];

#[derive(Args, Debug)]
#[command(after_help = "Put `# yaml-language-server: $schema=FILE` on the first line of a playbook to use one.")]
pub struct SchemaArgs {
    /// inventory, playbook, meta (of a role), module, or all
    name: String,

    /// The module, after `module`
    module: Option<String>,
}

pub fn run(args: &SchemaArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let schema = match (args.name.as_str(), &args.module) {
        ("all", None) => all(),
        ("inventory", None) => inventory::schema(),
        ("playbook", None) => playbook::schema(&LIBRARY),
        ("meta", None) => playbook::meta_schema(),
        ("module", Some(name)) => find_module(name)?.schema().to_value(),
        ("module", None) => return Err(CliError::usage("which module? Write `etcdrun schema module NAME`")),
        (_, Some(extra)) => return Err(CliError::usage(format!("`{extra}` is one argument too many"))),
        (other, None) => {
            let help = did_you_mean(other, NAMES);
            let help = help.or_else(|| Some(format!("there are: {}", NAMES.join(", "))));
            return Err(CliError::usage_with_help(format!("there is no schema `{other}`"), help));
        }
    };
    invocation.print(&format!("{schema:#}\n"))?;
    Ok(Exit::Success)
}

fn all() -> Value {
    let modules: Map<String, Value> =
        LIBRARY.modules.iter().map(|module| (module.name.to_owned(), module.schema().to_value())).collect();
    json!({
        "inventory": inventory::schema(),
        "playbook": playbook::schema(&LIBRARY),
        "meta": playbook::meta_schema(),
        "modules": modules,
    })
}
