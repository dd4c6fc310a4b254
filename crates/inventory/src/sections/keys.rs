//! `keys`: keys of a cluster and their values. Other keys of it are never touched.

use std::fmt;

use indexmap::IndexMap;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{
    Deserialize, Deserializer,
    de::{self, value::MapAccessDeserializer},
};

use super::Presence;
use crate::model::{Base64, Value};

/// Keys of a cluster, by name: each with its value, or with a mapping that says more.
pub type KeysSection = IndexMap<String, KeyEntry>;

/// How much etcd accepts in one request, unless its setting `max-request-bytes` says something else.
pub const MAX_REQUEST: u64 = 1_572_864;
/// How many keys etcd writes in one transaction, unless its setting `max-txn-ops` says something else.
pub const MAX_OPERATIONS: u32 = 128;

/// About how many bytes of a request one key takes: it is compared, written, and read if the comparison fails.
pub fn request_size(key: usize, value: usize) -> u64 {
    const REST: usize = 256;
    (3 * key + value + REST) as u64
}

/// What a key is to be.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeclaredKey {
    /// The value. A mapping or a list is written as JSON.
    pub content: Option<Value>,
    /// The value in base64, for bytes that are no text.
    pub base64: Option<Base64>,
    /// A file with the value, which may be encrypted with age. With a slash at the end, a directory: each file in it and below is
    /// a key, by its path behind this key, which ends in a slash too.
    pub src: Option<String>,
    /// Default: present.
    pub state: Presence,
    /// With `state: absent`: remove all keys that begin with this one.
    pub prefix: bool,
    /// Write the value only if there is no such key: applications may change it later.
    pub only_if_missing: bool,
    /// Never show the value. Encrypted values and files are never shown anyway.
    pub secret: bool,
}

impl DeclaredKey {
    /// Whether it stands for all files of a directory.
    pub fn is_folder(&self) -> bool {
        self.src.as_deref().is_some_and(|src| src.ends_with('/'))
    }

    /// The value, if it is not in a file.
    pub fn value(&self) -> Option<Vec<u8>> {
        match (&self.content, &self.base64) {
            (Some(Value::String(text)), _) => Some(text.clone().into_bytes()),
            (Some(value), _) => Some(value.to_string().into_bytes()),
            (None, Some(bytes)) => Some(bytes.0.clone()),
            (None, None) => None,
        }
    }
}

/// A key, as it is written: a single value is short for its `content`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct KeyEntry(pub DeclaredKey);

struct EntryVisitor;

impl<'de> de::Visitor<'de> for EntryVisitor {
    type Value = KeyEntry;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, or a mapping with `content`, `base64`, `src` or `state`")
    }

    fn visit_str<E: de::Error>(self, text: &str) -> Result<KeyEntry, E> {
        Ok(of_content(text))
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<KeyEntry, E> {
        Ok(of_content(value))
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<KeyEntry, E> {
        Ok(of_content(value))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<KeyEntry, E> {
        Ok(of_content(value))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<KeyEntry, E> {
        Ok(of_content(value))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<KeyEntry, A::Error> {
        DeclaredKey::deserialize(MapAccessDeserializer::new(map)).map(KeyEntry)
    }
}

fn of_content(content: impl Into<Value>) -> KeyEntry {
    KeyEntry(DeclaredKey { content: Some(content.into()), ..DeclaredKey::default() })
}

impl<'de> Deserialize<'de> for KeyEntry {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(EntryVisitor)
    }
}

impl JsonSchema for KeyEntry {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "KeyEntry".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let declared = generator.subschema_for::<DeclaredKey>();
        json_schema!({"anyOf": [{"type": ["string", "number", "boolean"]}, declared]})
    }
}

/// What is wrong with one of the keys, whatever its value is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyProblem {
    pub key: String,
    pub message: String,
    pub help: &'static str,
}

/// What cannot be meant: found by what is there, so that a value may still be a template.
pub fn key_problems(keys: &KeysSection) -> Vec<KeyProblem> {
    let mut found: Vec<KeyProblem> = keys.iter().filter_map(|(key, entry)| problem(key, &entry.0)).collect();
    let prefixes = || keys.iter().filter(|(key, entry)| entry.0.prefix && !key.is_empty()).map(|(key, _)| key);
    for (key, entry) in keys {
        let Some(prefix) = prefixes().find(|prefix| *prefix != key && key.starts_with(*prefix)) else { continue };
        let (message, help) = match entry.0.state {
            Presence::Present => (
                format!("`{key}` would be removed: all keys with the prefix `{prefix}` are to be absent"),
                "remove one of the two entries, or name the keys to remove one by one",
            ),
            Presence::Absent => (
                format!("`{key}` is to be absent, and so are all keys with the prefix `{prefix}`"),
                "remove the entry of the longer one",
            ),
        };
        found.push(KeyProblem { key: key.clone(), message, help });
    }
    found
}

fn problem(key: &str, declared: &DeclaredKey) -> Option<KeyProblem> {
    let is_folder = declared.is_folder();
    let given: Vec<&str> = [
        ("content", declared.content.is_some()),
        ("base64", declared.base64.is_some()),
        ("src", declared.src.is_some()),
    ]
    .into_iter()
    .filter_map(|(name, is_given)| is_given.then_some(name))
    .collect();
    let (message, help) = match (declared.state, given.as_slice()) {
        _ if key.is_empty() => {
            ("a key is empty, which etcd does not accept".to_owned(), "write all of its name, such as /app/limit")
        }
        _ if key.contains("{{") => (
            format!("the key `{key}` is a template, and only values are rendered"),
            "render the complete mapping, as in `keys: \"{{ ... }}\"`",
        ),
        (Presence::Absent, [name, ..]) => {
            (format!("`{key}` is to be absent, but it has `{name}`"), "remove the value, or `state: absent`")
        }
        (Presence::Absent, []) if declared.only_if_missing => (
            format!("`{key}` is to be absent, but it has `only_if_missing`"),
            "remove `only_if_missing`, or `state: absent`",
        ),
        (Presence::Present, _) if declared.prefix => (
            format!("`prefix` of `{key}` says which keys to remove, but `{key}` is to be present"),
            "add `state: absent`, or remove `prefix`; for many values use `src` with a directory",
        ),
        (Presence::Present, []) => (
            format!("`{key}` has no value"),
            "add one of `content`, `base64` and `src`, or `state: absent`; an empty value is `\"\"`",
        ),
        (Presence::Present, [one, other, ..]) => {
            (format!("`{one}` and `{other}` of `{key}` exclude each other"), "remove one of them")
        }
        (Presence::Present, _) if declared.src.as_deref() == Some("") => {
            (format!("`src` of `{key}` is empty"), "write the path of a file")
        }
        (Presence::Present, _) if is_folder && !key.ends_with('/') => (
            format!("the files of a directory would be keys that begin with `{key}` without a slash behind it"),
            "end the key in a slash, as `src` does",
        ),
        _ => return None,
    };
    Some(KeyProblem { key: key.to_owned(), message, help })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::{Diagnostics, Sources, check, parse};

    /// The messages of a section, of its shape or of what its entries say.
    fn told(yaml: &str) -> Vec<String> {
        let (mut sources, mut diagnostics) = (Sources::default(), Diagnostics::default());
        let file = sources.add("t.yaml", yaml);
        let node = parse(&sources, file, &mut diagnostics).unwrap();
        let keys = check::<KeysSection>(&node, &mut diagnostics);
        let shape = diagnostics.iter().map(|problem| problem.message.clone());
        shape.chain(keys.iter().flat_map(key_problems).map(|problem| problem.message)).collect()
    }

    #[test]
    fn a_single_value_is_the_content() {
        let keys = "{/a: text, /b: 5, /c: true, /d: \"\", /e: {content: {x: [1]}}, /f: {base64: AAEC}, /g/: {src: files/}, \
             /h: {state: absent}, /i/: {state: absent, prefix: true}, /j: \"{{ j }}\", /k: {base64: \"{{ k }}\"}}";
        assert_eq!(told(keys), [""; 0]);
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        for (keys, message) in [
            ("{/a: }", "a value, or a mapping"),
            ("{/a: [x]}", "a value, or a mapping"),
            ("{/a: {contnet: x}}", "unknown key `contnet`"),
            ("{/a: {base64: \"??\"}}", "is not base64"),
            ("{\"\": x}", "a key is empty"),
            ("{\"/{{ a }}\": x}", "is a template"),
            ("{/a: {secret: true}}", "`/a` has no value"),
            ("{/a: {content: x, src: y}}", "`content` and `src` of `/a` exclude each other"),
            ("{/a: {content: x, state: absent}}", "`/a` is to be absent, but it has `content`"),
            ("{/a: {only_if_missing: true, state: absent}}", "`/a` is to be absent, but it has `only_if_missing`"),
            ("{/a/: {prefix: true, content: x}}", "`/a/` is to be present"),
            ("{/a: {src: \"\"}}", "`src` of `/a` is empty"),
            ("{/a: {src: files/}}", "without a slash behind it"),
            ("{/a/: {state: absent, prefix: true}, /a/b: x}", "`/a/b` would be removed"),
            (
                "{/a/: {state: absent, prefix: true}, /a/b: {state: absent}}",
                "and so are all keys with the prefix `/a/`",
            ),
        ] {
            let found = told(keys);
            assert!(found.len() == 1 && found[0].contains(message), "{keys}: {found:?}");
        }
    }

    #[test]
    fn keys_next_to_a_removed_prefix_stay() {
        assert_eq!(told("{/a/: {state: absent, prefix: true}, /a: x, /ab: y}"), [""; 0]);
    }
}
