//! JSON, YAML, base64, hashes, and conversions between types.

use std::io;

use base64::{Engine as _, prelude::BASE64_STANDARD};
use minijinja::{
    Environment, Error, Value,
    value::{Kwargs, Rest, ValueKind},
};
use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter, PrettyFormatter};

use super::{
    super::convert::{from_value, invalid, to_value, undefined},
    describe, named,
};
use crate::{
    digest,
    model::{self, ByteSize},
    source::{Diagnostics, Sources, parse},
};

pub(super) fn add_to(environment: &mut Environment<'static>) {
    environment.add_filter("to_json", to_json);
    environment.add_filter("to_nice_json", to_nice_json);
    environment.add_filter("from_json", from_json);
    environment.add_filter("to_yaml", to_yaml);
    environment.add_filter("to_nice_yaml", to_nice_yaml);
    environment.add_filter("from_yaml", from_yaml);
    environment.add_filter("b64encode", b64encode);
    environment.add_filter("b64decode", b64decode);
    environment.add_filter("hash", hash);
    environment.add_filter("checksum", |text: Value| hash(text, Some("sha1".into())));
    environment.add_filter("bool", to_bool);
    environment.add_filter("mandatory", mandatory);
    environment.add_filter("ternary", ternary);
    environment.add_filter("type_debug", type_debug);
    environment.add_filter("human_readable", human_readable);
    environment.add_filter("human_to_bytes", human_to_bytes);
}

/// One line, with a space after commas and colons, as Ansible writes it.
struct Spaced;

impl Formatter for Spaced {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first { Ok(()) } else { writer.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

fn write_json(value: &model::Value, formatter: impl Formatter) -> Result<String, Error> {
    let mut bytes = Vec::new();
    value
        .serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, formatter))
        .map_err(|error| invalid(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| invalid(error.to_string()))
}

fn to_json(value: Value, options: Kwargs) -> Result<String, Error> {
    let mut value = to_value(&value)?;
    if options.get::<Option<bool>>("sort_keys")?.unwrap_or(false) {
        value.sort_all_objects();
    }
    let indent = options.get::<Option<usize>>("indent")?;
    let separators = options.get::<Option<Value>>("separators")?;
    options.assert_all_used()?;
    match (indent, separators) {
        (Some(width), _) => write_pretty(&value, width),
        (None, Some(_)) => write_json(&value, CompactFormatter),
        (None, None) => write_json(&value, Spaced),
    }
}

fn to_nice_json(value: Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    let mut value = to_value(&value)?;
    let width = named(indent, &options, "indent")?.unwrap_or(4);
    if options.get::<Option<bool>>("sort_keys")?.unwrap_or(true) {
        value.sort_all_objects();
    }
    options.assert_all_used()?;
    write_pretty(&value, width)
}

fn write_pretty(value: &model::Value, width: usize) -> Result<String, Error> {
    let indent = b" ".repeat(width.min(64));
    write_json(value, PrettyFormatter::with_indent(&indent))
}

fn from_json(text: &Value) -> Result<Value, Error> {
    let text = string(text)?;
    let value: model::Value =
        serde_json::from_str(text).map_err(|error| invalid(format!("this is not JSON: {error}")))?;
    Ok(from_value(&value))
}

fn to_yaml(value: Value, options: Kwargs) -> Result<String, Error> {
    let width = options.get::<Option<usize>>("indent")?.unwrap_or(2);
    write_yaml(&value, width)
}

fn to_nice_yaml(value: Value, indent: Option<usize>, options: Kwargs) -> Result<String, Error> {
    write_yaml(&value, named(indent, &options, "indent")?.unwrap_or(4))
}

fn write_yaml(value: &Value, width: usize) -> Result<String, Error> {
    let options = serde_saphyr::ser_options! { indent_step: width.clamp(1, 16) };
    serde_saphyr::to_string_with_options(&to_value(value)?, options).map_err(|error| invalid(error.to_string()))
}

fn from_yaml(text: &Value) -> Result<Value, Error> {
    let mut sources = Sources::default();
    let file = sources.add("text", string(text)?);
    let mut problems = Diagnostics::default();
    let node = parse(&sources, file, &mut problems);
    if let Some(problem) = problems.iter().next() {
        return Err(invalid(problem.message.clone()));
    }
    Ok(node.map_or_else(|| Value::from(()), |node| from_value(&node.to_value())))
}

fn string(value: &Value) -> Result<&str, Error> {
    value.as_str().ok_or_else(|| invalid(format!("expected a string, found {}", describe(value))))
}

fn b64encode(value: String) -> String {
    BASE64_STANDARD.encode(value)
}

fn b64decode(text: String) -> Result<String, Error> {
    let bytes = BASE64_STANDARD.decode(text.trim()).map_err(|error| invalid(format!("this is not base64: {error}")))?;
    String::from_utf8(bytes).map_err(|_| invalid("these bytes are not text"))
}

fn hash(value: Value, algorithm: Option<String>) -> Result<String, Error> {
    let text = value.to_string();
    let algorithm = algorithm.as_deref().unwrap_or("sha1");
    digest::named(algorithm, text)
        .ok_or_else(|| invalid(format!("unknown hash `{algorithm}`: use sha256, sha512, sha384, sha224 or sha1")))
}

fn to_bool(value: &Value) -> Result<bool, Error> {
    if value.kind() == ValueKind::Bool {
        return Ok(value.is_true());
    }
    match value.to_string().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "y" | "t" | "1" | "1.0" => Ok(true),
        "false" | "no" | "off" | "n" | "f" | "0" | "0.0" => Ok(false),
        _ => Err(invalid(format!("{} is neither true nor false", describe(value)))),
    }
}

fn mandatory(value: &Value, message: Option<String>, options: Kwargs) -> Result<Value, Error> {
    if !value.is_undefined() {
        return Ok(value.clone());
    }
    Err(named(message, &options, "msg")?.map_or_else(|| undefined(value), invalid))
}

fn ternary(value: &Value, yes: Value, no: Value, none: Option<Value>) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::Undefined => Err(undefined(value)),
        ValueKind::None => Ok(none.unwrap_or(no)),
        _ => Ok(if value.is_true() { yes } else { no }),
    }
}

/// The names Ansible's users know.
fn type_debug(value: &Value) -> &'static str {
    match value.kind() {
        ValueKind::Undefined => "undefined",
        ValueKind::None => "NoneType",
        ValueKind::Bool => "bool",
        ValueKind::Number if value.is_integer() => "int",
        ValueKind::Number => "float",
        ValueKind::String => "str",
        ValueKind::Bytes => "bytes",
        ValueKind::Seq | ValueKind::Iterable => "list",
        ValueKind::Map => "dict",
        _ => "object",
    }
}

fn human_readable(size: f64, options: Rest<Value>) -> Result<String, Error> {
    if !options.is_empty() {
        return Err(invalid("`human_readable` takes no arguments"));
    }
    let units = [("TB", 1u64 << 40), ("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)];
    let unit = units.iter().find(|(_, factor)| size.abs() >= *factor as f64);
    Ok(match unit {
        Some((name, factor)) => format!("{:.2} {name}", size / *factor as f64),
        None => format!("{size:.2} Bytes"),
    })
}

fn human_to_bytes(size: Value) -> Result<u64, Error> {
    size.to_string().parse::<ByteSize>().map(|size| size.0).map_err(|error| invalid(error.to_string()))
}
