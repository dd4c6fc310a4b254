//! `etcdrun doc [MODULE]`: a module's page, rendered from the same types that check its arguments.

use std::fmt::Write;

use clap::Args;
use serde_json::{Value, json};

use crate::cli::support::{CliError, Exit, Invocation, modules::find_module};
use crate::{
    LIBRARY,
    report::{Look, Tone},
    task::ModuleSpec,
};

#[derive(Args, Debug)]
pub struct DocArgs {
    /// The module to show; without one, all are listed
    module: Option<String>,
}

pub fn run(args: &DocArgs, invocation: &Invocation) -> Result<Exit, CliError> {
    let text = match &args.module {
        Some(name) => {
            let module = find_module(name)?;
            match invocation.json {
                true => format!("{:#}\n", as_json(module)),
                false => page(module, &invocation.stdout),
            }
        }
        None if invocation.json => {
            let modules: Vec<Value> = LIBRARY.modules.iter().map(as_json).collect();
            format!("{:#}\n", Value::from(modules))
        }
        None => list(&invocation.stdout),
    };
    invocation.print(&text)?;
    Ok(Exit::Success)
}

fn as_json(module: &ModuleSpec) -> Value {
    let result: Vec<Value> = module.result.iter().map(|f| json!({ "name": f.name, "description": f.doc })).collect();
    json!({
        "name": module.name,
        "free_form": module.free_form,
        "schema": module.schema(),
        "result": result,
        "example": module.example,
    })
}

fn list(look: &Look) -> String {
    let width = LIBRARY.names().map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for module in LIBRARY.modules {
        let about = description(module.schema().as_value());
        let first = about.split("\n\n").next().unwrap_or_default().replace('\n', " ");
        let name = look.paint(Tone::Strong, format!("{:width$}", module.name));
        let _ = writeln!(text, "{name}  {first}");
    }
    text
}

fn page(module: &ModuleSpec, look: &Look) -> String {
    let schema = module.schema();
    let schema = schema.as_value();
    let mut text = format!("{}\n\n", look.paint(Tone::Strong, module.name));
    push_block(&mut text, 0, &description(schema));
    arguments(&mut text, module, schema, look);
    results(&mut text, module, look);
    let _ = writeln!(text, "\n{}", look.paint(Tone::Strong, "EXAMPLE"));
    push_block(&mut text, 2, module.example.trim_matches('\n'));
    text
}

fn arguments(text: &mut String, module: &ModuleSpec, schema: &Value, look: &Look) {
    if schema["properties"].as_object().is_none_or(serde_json::Map::is_empty) {
        let free = schema["additionalProperties"] != false;
        let _ = writeln!(text, "\nTakes {} arguments.", if free { "any" } else { "no" });
        return;
    }
    let _ = writeln!(text, "\n{}", look.paint(Tone::Strong, "ARGUMENTS"));
    keys(text, 0, schema, &Arguments { module, schema, look });
}

/// What is shown, and how.
struct Arguments<'a> {
    module: &'a ModuleSpec,
    schema: &'a Value,
    look: &'a Look,
}

/// The keys of a mapping, and of the mappings inside of it. Below these, sections of the inventory begin, which its own schema shows.
fn keys(text: &mut String, depth: usize, mapping: &Value, of: &Arguments<'_>) {
    let indent = 2 + 4 * depth;
    let required = |name: &str| mapping["required"].as_array().is_some_and(|list| list.iter().any(|n| n == name));
    for (name, property) in mapping["properties"].as_object().into_iter().flatten() {
        let mut facts = vec![type_name(property, of.schema)];
        if required(name) {
            facts.push("required".to_owned());
        }
        if let Some(default) = property.get("default").filter(|value| !is_empty(value)) {
            facts.push(format!("default: {}", plain_value(default)));
        }
        if depth == 0 && of.module.free_form == Some(name) {
            facts.push("may be given as a bare string".to_owned());
        }
        let facts = of.look.paint(Tone::Quiet, format!("({})", facts.join(", ")));
        let _ = writeln!(text, "{:indent$}{} {facts}", "", of.look.paint(Tone::Strong, name));
        let kind = resolve(property, of.schema);
        let about = if property["description"].is_string() { property } else { kind };
        push_block(text, indent + 4, &description(about));
        for (choice, meaning) in described_choices(kind) {
            push_block(text, indent + 6, &format!("{choice}: {meaning}"));
        }
        if depth == 0 {
            keys(text, depth + 1, kind, of);
        }
    }
}

fn results(text: &mut String, module: &ModuleSpec, look: &Look) {
    let _ = writeln!(text, "\n{}", look.paint(Tone::Strong, "RESULT"));
    push_block(text, 2, "changed, failed, skipped, msg, rc, stdout, stderr, stdout_lines, stderr_lines");
    for field in module.result {
        let _ = writeln!(text, "  {}", look.paint(Tone::Strong, field.name));
        push_block(text, 6, field.doc);
    }
}

fn push_block(text: &mut String, indent: usize, block: &str) {
    for line in block.lines() {
        let _ = writeln!(text, "{}", format!("{:indent$}{line}", "").trim_end());
    }
}

fn description(schema: &Value) -> String {
    schema["description"].as_str().unwrap_or_default().to_owned()
}

/// Follows a reference to a definition.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let named =
        |schema: &Value| schema["$ref"].as_str().and_then(|path| path.strip_prefix("#/$defs/").map(str::to_owned));
    match named(schema).or_else(|| some_of(schema).into_iter().find_map(named)) {
        Some(name) => &root["$defs"][name],
        None => schema,
    }
}

/// The alternatives of a schema, without "or nothing".
fn some_of(schema: &Value) -> Vec<&Value> {
    let alternatives = ["anyOf", "oneOf"].into_iter().find_map(|key| schema[key].as_array());
    alternatives.into_iter().flatten().filter(|part| part["type"] != "null").collect()
}

/// The type in words.
fn type_name(schema: &Value, root: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        return choices.iter().map(plain_value).collect::<Vec<_>>().join(" | ");
    }
    if let Some(value) = schema.get("const") {
        return plain_value(value);
    }
    if schema["$ref"].is_string() {
        return type_name(resolve(schema, root), root);
    }
    let parts = some_of(schema);
    if !parts.is_empty() {
        let mut names: Vec<String> = parts.into_iter().map(|part| type_name(part, root)).collect();
        names.dedup();
        return names.join(" | ");
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => format!("list of {}", type_name(&schema["items"], root)),
        Value::String(name) => json_type(name).to_owned(),
        Value::Array(names) => {
            let names = names.iter().filter_map(Value::as_str).filter(|name| *name != "null");
            let names = names.map(|name| match name {
                "array" => format!("list of {}", type_name(&schema["items"], root)),
                other => json_type(other).to_owned(),
            });
            names.collect::<Vec<_>>().join(" | ")
        }
        _ => "any value".to_owned(),
    }
}

fn json_type(name: &str) -> &str {
    match name {
        "object" => "mapping",
        other => other,
    }
}

/// Choices of an enumeration that have a description each.
fn described_choices(schema: &Value) -> Vec<(String, String)> {
    let named = |part: &&Value| part.get("const").is_some() && part["description"].is_string();
    let pair = |part: &Value| (plain_value(&part["const"]), description(part).replace('\n', " "));
    some_of(schema).into_iter().filter(named).map(pair).collect()
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn plain_value(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What may be left out has a value then, and the page says which.
    #[test]
    fn every_default_of_a_scalar_is_shown() {
        let is_scalar = |kind: &str| matches!(kind, "string" | "integer" | "number" | "boolean");
        for module in LIBRARY.modules {
            let schema = module.schema();
            let schema = schema.as_value();
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            for (name, property) in schema["properties"].as_object().into_iter().flatten() {
                let kind = resolve(property, schema);
                let is_choice = kind.get("enum").is_some() || !described_choices(kind).is_empty();
                let is_nullable = property["type"]
                    .as_array()
                    .is_some_and(|types| types.iter().any(|kind| kind == "null"))
                    || ["anyOf", "oneOf"].iter().any(|key| {
                        property[*key].as_array().is_some_and(|parts| parts.iter().any(|part| part["type"] == "null"))
                    });
                let is_scalar = kind["type"].as_str().is_some_and(is_scalar) || is_choice;
                if is_scalar && !is_nullable && !required.contains(&Value::from(name.as_str())) {
                    assert!(property.get("default").is_some(), "{}: {name} {property}", module.name);
                }
            }
        }
        let page = page(find_module("etcd_gate").unwrap(), &Look { color: false, live: false, width: 100 });
        assert!(page.contains("default: 1m"), "{page}");
    }
}
