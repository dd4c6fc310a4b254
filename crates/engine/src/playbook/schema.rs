//! The JSON Schema of playbooks, from the keyword table and the modules' own schemas.

use schemars::schema_for;
use serde_json::{Map as Json, json};

use super::{
    RolloutSettings,
    keywords::{Holder, Keyword, Shape, keywords_on},
};
use crate::{
    model::Value,
    task::{Library, ModuleSpec},
};

/// The JSON Schema of a playbook file: a list of plays and imports.
pub fn schema(library: &Library) -> Value {
    let mut definitions = Json::new();
    definitions.insert("template".into(), json!({ "type": "string", "pattern": "\\{[{%]" }));
    definitions.insert("tasks".into(), json!({ "type": ["array", "null"], "items": reference("task") }));
    definitions.insert("handlers".into(), json!({ "type": ["array", "null"], "items": reference("handler") }));
    definitions.insert("roles".into(), json!({ "type": ["array", "null"], "items": reference("role") }));
    definitions.insert("role".into(), role());
    definitions.insert("block".into(), object(Holder::Block, &["block"]));
    definitions.insert("import".into(), import());
    definitions.insert("meta".into(), meta());
    definitions.insert("task".into(), entry("call"));
    definitions.insert("handler".into(), entry("handler_call"));
    definitions.insert("call".into(), call(library, Holder::Task));
    definitions.insert("handler_call".into(), call(library, Holder::Handler));
    definitions.insert("play".into(), object(Holder::Play, &["hosts"]));
    definitions.insert("import_playbook".into(), object(Holder::ImportPlaybook, &["import_playbook"]));
    definitions.insert("rollout".into(), rollout());
    for module in library.modules {
        definitions.insert(definition_name(module.name), module_schema(module));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Playbook",
        "description": "A list of plays.",
        "type": "array",
        "items": { "anyOf": [reference("play"), reference("import_playbook")] },
        "$defs": definitions,
    })
}

/// An entry of a list of tasks.
fn entry(call: &str) -> Value {
    json!({ "anyOf": [reference("block"), reference("import"), reference("meta"), reference(call)] })
}

fn object(holder: Holder, required: &[&str]) -> Value {
    let properties: Json<String, Value> =
        keywords_on(holder).map(|keyword| (keyword.name.to_owned(), property(keyword))).collect();
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

/// Keywords, and exactly one module.
fn call(library: &Library, holder: Holder) -> Value {
    let mut call = object(holder, &[]);
    let names = || library.names().chain(["action"]);
    if let Some(properties) = call["properties"].as_object_mut() {
        properties.extend(library.names().map(|name| (name.to_owned(), reference(&definition_name(name)))));
    }
    call["oneOf"] = names().map(|name| json!({ "required": [name] })).collect();
    call
}

fn import() -> Value {
    let mut import = object(Holder::Include, &[]);
    let imports = ["import_tasks", "include_tasks", "import_role", "include_role"];
    import["oneOf"] = imports.iter().map(|name| json!({ "required": [name] })).collect();
    import
}

fn meta() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": { "type": "string" },
            "tags": words(),
            "meta": { "enum": ["flush_handlers", "noop"], "description": "Runs the notified handlers now, or nothing." },
        },
        "required": ["meta"],
        "additionalProperties": false,
    })
}

/// Keys that are no keywords are arguments of the role.
fn role() -> Value {
    let mut role = object(Holder::Role, &[]);
    role["additionalProperties"] = json!(true);
    role["anyOf"] = json!([{ "required": ["role"] }, { "required": ["name"] }]);
    json!({ "anyOf": [{ "type": "string" }, role] })
}

fn property(keyword: &Keyword) -> Value {
    let mut schema = shape(keyword);
    if let Some(map) = schema.as_object_mut() {
        map.insert("description".into(), keyword.doc.into());
    }
    schema
}

fn shape(keyword: &Keyword) -> Value {
    let template = || reference("template");
    match keyword.shape {
        Shape::Text => json!({ "type": "string" }),
        Shape::Bool => json!({ "anyOf": [{ "type": "boolean" }, template()] }),
        Shape::Count => json!({ "anyOf": [{ "type": "integer", "minimum": 0 }, template()] }),
        Shape::Number => json!({ "anyOf": [{ "type": "number" }, template()] }),
        Shape::Duration => json!({ "type": ["number", "string"] }),
        Shape::Words => words(),
        Shape::OneOf(known) => json!({ "enum": known }),
        Shape::Condition => json!({
            "anyOf": [{ "type": ["string", "boolean"] }, { "type": "array", "items": { "type": ["string", "boolean"] } }]
        }),
        Shape::Mapping => json!({ "type": ["object", "null"] }),
        Shape::Rollout => json!({ "anyOf": [reference("rollout"), { "type": "null" }, template()] }),
        Shape::Environment => json!({ "anyOf": [{ "type": "object" }, { "type": "array" }, template()] }),
        Shape::Items => json!({ "anyOf": [{ "type": "array" }, template()] }),
        Shape::LoopControl => loop_control(),
        Shape::Serial => json!({
            "anyOf": [{ "type": ["integer", "string"] }, { "type": "array", "items": { "type": ["integer", "string"] } }]
        }),
        Shape::Needs => needs(),
        Shape::Roles => reference("roles"),
        Shape::Tasks if keyword.name == "handlers" => reference("handlers"),
        Shape::Tasks => reference("tasks"),
        Shape::RoleName if keyword.name == "role" => json!({ "type": "string" }),
        Shape::RoleName => imported_role(),
        Shape::FileName => json!({
            "anyOf": [{ "type": "string" }, { "type": "object", "properties": { "file": { "type": "string" } } }]
        }),
    }
}

fn words() -> Value {
    json!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": { "type": "string" } }] })
}

fn loop_control() -> Value {
    json!({
        "type": "object",
        "properties": {
            "loop_var": { "type": "string", "description": "The name of the item; default: `item`." },
            "index_var": { "type": "string", "description": "The name of the counter, from 0." },
            "label": { "description": "What reports show for an item." },
            "pause": { "type": ["number", "string"], "description": "The wait between items." },
        },
        "additionalProperties": false,
    })
}

fn needs() -> Value {
    let need = json!({
        "anyOf": [{ "type": "string" }, {
            "type": "object",
            "properties": { "task": { "type": "string" }, "hosts": { "type": "string" } },
            "required": ["task"],
            "additionalProperties": false,
        }]
    });
    json!({ "anyOf": [need, { "type": "array", "items": need }] })
}

fn imported_role() -> Value {
    let text = || json!({ "type": "string" });
    json!({
        "anyOf": [{ "type": "string" }, {
            "type": "object",
            "properties": {
                "name": text(), "tasks_from": text(), "vars_from": text(), "defaults_from": text(),
                "handlers_from": text(), "vars": { "type": "object" },
                "public": { "type": "boolean" }, "allow_duplicates": { "type": "boolean" },
            },
            "required": ["name"],
            "additionalProperties": false,
        }]
    })
}

/// Each setting may also be a template.
fn rollout() -> Value {
    let mut schema = schema_for!(RolloutSettings).to_value();
    move_references(&mut schema, "#/$defs/rollout/$defs/");
    if let Some(map) = schema.as_object_mut() {
        map.remove("$schema");
        or_templates(map);
    }
    schema
}

/// Lets each property be a template, too.
fn or_templates(schema: &mut Json<String, Value>) {
    for property in schema.get_mut("properties").and_then(Value::as_object_mut).into_iter().flat_map(Json::values_mut) {
        let description = property.as_object_mut().and_then(|map| map.remove("description"));
        *property = json!({ "anyOf": [property.take(), reference("template")] });
        if let Some(description) = description {
            property["description"] = description;
        }
    }
}

/// A module's arguments: each may also be a template, and some modules take a bare string.
fn module_schema(module: &ModuleSpec) -> Value {
    let name = definition_name(module.name);
    let mut schema = module.schema().to_value();
    move_references(&mut schema, &format!("#/$defs/{name}/$defs/"));
    let Some(map) = schema.as_object_mut() else {
        return schema;
    };
    map.remove("$schema");
    let mut definitions = map.remove("$defs");
    let required = map.remove("required");
    or_templates(map);
    // So may what is inside of an argument.
    let inner = definitions.as_mut().and_then(Value::as_object_mut).into_iter().flat_map(Json::values_mut);
    inner.filter_map(Value::as_object_mut).for_each(or_templates);
    let description = map.get("description").cloned().unwrap_or_default();
    // What `args:` adds is not known here, so a missing argument is left to the loader.
    drop(required);
    let bare =
        if module.free_form.is_some() { json!({ "type": ["string", "null"] }) } else { json!({ "type": "null" }) };
    json!({ "description": description, "anyOf": [schema, bare], "$defs": definitions.unwrap_or_else(|| json!({})) })
}

fn move_references(value: &mut Value, prefix: &str) {
    match value {
        Value::Object(map) => {
            if let Some(target) = map.get("$ref").and_then(Value::as_str).and_then(|text| text.strip_prefix("#/$defs/"))
            {
                let moved = format!("{prefix}{target}");
                map.insert("$ref".into(), moved.into());
            }
            map.values_mut().for_each(|value| move_references(value, prefix));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| move_references(value, prefix)),
        _ => {}
    }
}

fn definition_name(module: &str) -> String {
    format!("module_{module}")
}

fn reference(name: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{name}") })
}
