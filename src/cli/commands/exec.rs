//! `etcdrun exec PATTERN -- COMMAND...`: one task on hosts, written as a play of one task.

use clap::Args;
use serde_json::{Value, json};

use crate::cli::support::{
    CliError, Exit, Invocation,
    args::{ConnectionArgs, InventoryArgs, RunArgs, VarsArgs},
    input::{Compiled, Input, Opening},
    modules::find_module,
    run::{self, Style},
    vars::pairs,
};
use crate::{
    compile::Selection,
    graph::Graph,
    inventory::Inventory,
    model::{Span, ValueMap},
    playbook::{self, LoadOptions},
    source::Diagnostic,
    task::ModuleSpec,
};

/// How messages call the play that is made here.
const ORIGIN: &str = "command line";

#[derive(Args, Debug)]
#[command(
    after_help = "Examples:\n  etcdrun exec all --read-only -- uptime\n  etcdrun exec 'hv[1-3]' -b --shell 'virsh list --all | grep running'\n  etcdrun exec hypervisors -b -m service -a 'name=chrony state=restarted'"
)]
pub struct ExecArgs {
    /// The hosts: names, groups, globs, ranges, `:` or `,` union, `!` exclusion, `&` intersection
    pattern: String,

    /// The command and its arguments; they are not passed through a shell
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,

    /// Run this text with a shell
    #[arg(long, value_name = "TEXT", conflicts_with_all = ["command", "module"])]
    shell: Option<String>,

    /// Call this module instead of `command`
    #[arg(short, long, value_name = "NAME", conflicts_with = "command")]
    module: Option<String>,

    /// The module's arguments: key=value, a YAML or JSON mapping, or its free-form argument
    #[arg(short, long, value_name = "ARGS", conflicts_with_all = ["command", "shell"])]
    args: Option<String>,

    /// Declare that the command changes nothing: it takes no lock, so others may run at the same time, and it may
    /// run again if its result is lost
    #[arg(long)]
    read_only: bool,

    #[command(flatten)]
    inventory: InventoryArgs,

    #[command(flatten)]
    vars: VarsArgs,

    #[command(flatten)]
    run: RunArgs,

    #[command(flatten)]
    connection: ConnectionArgs,
}

pub fn run(args: &ExecArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let (loaded, inputs) = invocation.loading(|| load(args, invocation));
    let (mut input, inventory, graph) = loaded?;
    input.check(invocation)?;
    let compiled = Compiled { input, inputs, inventory, graphs: graph.into_iter().collect() };
    Ok(run::execute(compiled, &args.connection, &args.run, Style::Adhoc, invocation)?.exit(false))
}

fn load(args: &ExecArgs, invocation: &Invocation) -> Result<(Input, Inventory, Option<Graph>), CliError> {
    let mut input = Input::new(&args.inventory.known.keys, Opening::All, invocation);
    input.extra_vars(&args.vars);
    let inventory = input.inventory(&args.inventory.known, invocation);
    let limit = input.limit(args.inventory.only.limit.as_deref(), &inventory);
    let mut task = task(args, &mut input)?;
    if args.read_only {
        task["changed_when"] = false.into();
    }
    let load = LoadOptions { extra_vars: input.extra_vars.clone(), ..run::load_options(invocation) };
    let play = json!([{ "name": "exec", "hosts": args.pattern, "tasks": [task] }]);
    let text = format!("{play:#}");
    let playbook = playbook::load_text(ORIGIN, text, &load, &mut input.sources, &mut input.diagnostics);
    input.check(invocation)?;
    let graph = input.compile(&inventory, &playbook, limit.as_ref(), &Selection::default());
    Ok((input, inventory, graph))
}

/// The one task, as it would stand in a playbook.
fn task(args: &ExecArgs, input: &mut Input) -> Result<Value, CliError> {
    if let Some(text) = &args.shell {
        return Ok(json!({ "name": text, "shell": { "cmd": text } }));
    }
    if !args.command.is_empty() {
        return Ok(json!({ "name": args.command.join(" "), "command": { "argv": args.command } }));
    }
    let name = match (&args.module, &args.args) {
        (Some(name), _) => name.as_str(),
        (None, Some(_)) => "command",
        (None, None) => {
            let help = "example: etcdrun exec all -- uptime";
            return Err(CliError::usage_with_help("no command given", Some(help.to_owned())));
        }
    };
    let module = find_module(name)?;
    if args.read_only && !module.traits.is_command_line {
        let message = format!("--read-only is only for commands; the module `{name}` detects itself what it changes");
        return Err(CliError::usage_with_help(message, Some("use --check to change nothing".to_owned())));
    }
    let value = match &args.args {
        Some(text) => module_args(module, text, input),
        None => Value::Null,
    };
    Ok(json!({ "name": name, name: value }))
}

/// Arguments as Ansible takes them: a mapping, key=value, or the text itself where the module has a
/// free-form argument.
fn module_args(module: &ModuleSpec, text: &str, input: &mut Input) -> Value {
    if module.traits.is_command_line && !text.starts_with('{') {
        return text.into();
    }
    let file = input.sources.add("-a", text);
    if text.starts_with('{') {
        return crate::source::parse(&input.sources, file, &mut input.diagnostics)
            .map_or(Value::Null, |n| n.to_value());
    }
    match pairs(text, Span::new(file, 0, text.len())) {
        Ok(vars) => {
            let typed =
                |text: &str| serde_json::from_str::<Value>(text).ok().filter(|v| v.is_boolean() || v.is_number());
            let value = |text: &str| typed(text).unwrap_or_else(|| text.into());
            let entries = vars.iter().filter_map(|(key, node)| Some((key.to_string(), value(node.as_str()?))));
            Value::Object(entries.collect::<ValueMap>())
        }
        Err(_) if module.free_form.is_some() => text.into(),
        Err(problem) => {
            input.diagnostics.push(Diagnostic {
                help: Some(format!("`etcdrun doc {}` lists its arguments", module.name)),
                ..problem
            });
            Value::Null
        }
    }
}
