//! Checks what is passed to a role against what the role declares.

use std::sync::Arc;

use indexmap::IndexMap;

use super::{
    meta::{Argument, ArgumentSpec, ArgumentType},
    role::RoleUse,
};
use crate::{
    model::{ByteSize, Seconds, Span},
    source::{Diagnostic, Diagnostics, Key, Kind, Node, did_you_mean},
};

/// Reports unknown, wrong and missing arguments where the role is used. `given` says whether a
/// variable has a value at that place even though it was not passed.
pub(super) fn check(
    role: &RoleUse,
    arguments: &[Argument],
    given: impl Fn(&str) -> bool,
    diagnostics: &mut Diagnostics,
) {
    let owner = format!("role `{}`", role.name.value);
    for (key, node) in &role.params {
        match arguments.iter().find(|argument| *argument.name == *key.name) {
            Some(argument) => check_value(&key.name, &argument.spec, node, diagnostics),
            None => diagnostics.push(unknown(&owner, key, arguments.iter().map(|argument| argument.name.as_str()))),
        }
    }
    let passed = |name: &str| role.params.iter().any(|(key, _)| &*key.name == name);
    for argument in arguments.iter().filter(|argument| argument.spec.required && argument.default.is_none()) {
        if !passed(&argument.name) && !given(&argument.name) {
            let help = format!("pass it: `vars: {{ {}: ... }}`", argument.name);
            diagnostics.push(missing(&owner, &argument.name, role.span).help(help));
        }
    }
    for argument in arguments {
        if let Some(default) = &argument.default {
            check_value(&argument.name, &argument.spec, default, diagnostics);
        }
    }
}

/// Defaults that arguments bring along.
pub(super) fn defaults(arguments: &[Argument]) -> impl Iterator<Item = (Arc<str>, Node)> {
    arguments.iter().filter_map(|argument| Some((argument.name.as_str().into(), argument.default.clone()?)))
}

fn unknown<'a>(owner: &str, key: &Key, known: impl Iterator<Item = &'a str> + Clone) -> Diagnostic {
    let help = did_you_mean(&key.name, known.clone())
        .unwrap_or_else(|| format!("it takes {}", known.collect::<Vec<_>>().join(", ")));
    Diagnostic::error(key.span, format!("{owner} takes no argument `{}`", key.name)).help(help)
}

fn missing(owner: &str, name: &str, span: Span) -> Diagnostic {
    Diagnostic::error(span, format!("{owner} needs the argument `{name}`"))
}

fn check_value(name: &str, spec: &ArgumentSpec, node: &Node, diagnostics: &mut Diagnostics) {
    if node.is_template() || node.tag.is_some() {
        return;
    }
    if let Some(problem) = mismatch(spec.kind, node) {
        diagnostics.push(Diagnostic::error(node.span, format!("`{name}`: {problem}")));
        return;
    }
    if let Some(choices) = spec.choices.as_ref().filter(|choices| !choices.contains(&node.to_value())) {
        let known: Vec<String> =
            choices.iter().map(|choice| choice.as_str().map_or_else(|| choice.to_string(), str::to_owned)).collect();
        let message = format!("`{name}`: {} is not one of {}", node.describe(), known.join(", "));
        let near = node.as_str().and_then(|word| did_you_mean(word, known.iter().map(String::as_str)));
        diagnostics.push(Diagnostic::error(node.span, message).maybe_help(near));
    }
    if let Kind::Seq(items) = &node.kind {
        items.iter().for_each(|item| check_element(name, spec, item, diagnostics));
    }
    if let (ArgumentType::Dict, Some(options)) = (spec.kind, &spec.options) {
        check_options(name, options, node, diagnostics);
    }
}

fn check_element(name: &str, spec: &ArgumentSpec, item: &Node, diagnostics: &mut Diagnostics) {
    if item.is_template() || item.tag.is_some() {
        return;
    }
    if let Some(problem) = spec.elements.and_then(|kind| mismatch(kind, item)) {
        diagnostics.push(Diagnostic::error(item.span, format!("`{name}`: {problem}")));
        return;
    }
    if let Some(options) = &spec.options {
        check_options(name, options, item, diagnostics);
    }
}

fn check_options(name: &str, options: &IndexMap<String, ArgumentSpec>, node: &Node, diagnostics: &mut Diagnostics) {
    let Some(map) = node.as_map() else { return };
    let owner = format!("`{name}`");
    for (key, value) in map.iter() {
        match options.get(&*key.name) {
            Some(spec) => check_value(&format!("{name}.{}", key.name), spec, value, diagnostics),
            None => diagnostics.push(unknown(&owner, key, options.keys().map(String::as_str))),
        }
    }
    let required = options.iter().filter(|(_, spec)| spec.required && spec.default.is_none());
    for (option, _) in required.filter(|(option, _)| map.get(option).is_none()) {
        diagnostics.push(missing(&owner, option, node.span));
    }
}

/// What is wrong with the value, if it does not fit the kind.
fn mismatch(kind: ArgumentType, node: &Node) -> Option<String> {
    let text = match &node.kind {
        Kind::String(text) => text.to_string(),
        Kind::Int(number) => number.to_string(),
        Kind::Float(number) => number.to_string(),
        _ => String::new(),
    };
    let scalar = !text.is_empty() || matches!(node.kind, Kind::String(_));
    let (fits, expected) = match kind {
        ArgumentType::String => (scalar, "a string"),
        ArgumentType::Path => (matches!(&node.kind, Kind::String(path) if !path.is_empty()), "a path"),
        ArgumentType::Int => (matches!(node.kind, Kind::Int(_)), "a whole number"),
        ArgumentType::Float => (matches!(node.kind, Kind::Int(_) | Kind::Float(_)), "a number"),
        ArgumentType::Bool => (matches!(node.kind, Kind::Bool(_)), "true or false"),
        ArgumentType::List => (matches!(node.kind, Kind::Seq(_)), "a list"),
        ArgumentType::Dict => (matches!(node.kind, Kind::Map(_)), "a mapping"),
        ArgumentType::Size => (text.parse::<ByteSize>().is_ok(), "a size, like 512MiB or 20GiB"),
        ArgumentType::Duration => (text.parse::<Seconds>().is_ok(), "a duration, like 30s or 5m"),
    };
    (!fits).then(|| format!("expected {expected}, found {}", node.describe()))
}
