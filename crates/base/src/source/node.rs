//! A YAML document as a tree in which every part knows where it was written.

use std::sync::Arc;

use indexmap::IndexMap;

use super::sealed::{AGE_TAG, OPENED_TAG};
use crate::model::{MASK, Span, Value, ValueMap};

/// Variables as written, in order; values may be templates.
pub type Vars = IndexMap<Arc<str>, Node>;

/// One value with its place and its tag (`!age`), if it has one.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    pub span: Span,
    pub tag: Option<Arc<str>>,
    pub kind: Kind,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Kind {
    Null,
    Bool(bool),
    Int(i64),
    Float(f64),
    String(Arc<str>),
    Seq(Vec<Node>),
    Map(Map),
}

/// A mapping key. Keys are always strings here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    pub name: Arc<str>,
    pub span: Span,
}

/// A mapping in the order it was written, without duplicates.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Map {
    entries: Vec<(Key, Node)>,
}

impl Map {
    pub fn new(entries: Vec<(Key, Node)>) -> Self {
        Self { entries }
    }

    pub fn get(&self, name: &str) -> Option<&Node> {
        self.entry(name).map(|(_, node)| node)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Node> {
        self.entries.iter_mut().find(|(key, _)| &*key.name == name).map(|(_, node)| node)
    }

    pub fn entry(&self, name: &str) -> Option<&(Key, Node)> {
        self.entries.iter().find(|(key, _)| &*key.name == name)
    }

    pub fn remove(&mut self, name: &str) -> Option<(Key, Node)> {
        let index = self.entries.iter().position(|(key, _)| &*key.name == name)?;
        Some(self.entries.remove(index))
    }

    pub fn push(&mut self, key: Key, node: Node) {
        self.entries.push((key, node));
    }

    pub fn iter(&self) -> impl Iterator<Item = &(Key, Node)> {
        self.entries.iter()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }
}

impl IntoIterator for Map {
    type Item = (Key, Node);
    type IntoIter = std::vec::IntoIter<(Key, Node)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl Node {
    pub fn new(span: Span, kind: Kind) -> Self {
        Self { span, tag: None, kind }
    }

    pub fn string(span: Span, text: impl Into<Arc<str>>) -> Self {
        Self::new(span, Kind::String(text.into()))
    }

    pub fn as_str(&self) -> Option<&str> {
        match &self.kind {
            Kind::String(text) => Some(text),
            _ => None,
        }
    }

    pub fn as_map(&self) -> Option<&Map> {
        match &self.kind {
            Kind::Map(map) => Some(map),
            _ => None,
        }
    }

    pub fn as_seq(&self) -> Option<&[Node]> {
        match &self.kind {
            Kind::Seq(items) => Some(items),
            _ => None,
        }
    }

    pub fn is_null(&self) -> bool {
        matches!(self.kind, Kind::Null)
    }

    /// Whether this is a string with template markers in it.
    pub fn is_template(&self) -> bool {
        self.as_str().is_some_and(|text| text.contains("{{") || text.contains("{%"))
    }

    /// Whether the value is encrypted, or was.
    pub fn is_secret(&self) -> bool {
        matches!(self.tag.as_deref(), Some(AGE_TAG | OPENED_TAG))
    }

    /// Whether the value is encrypted still: its text is not the value.
    pub fn is_sealed(&self) -> bool {
        self.tag.as_deref() == Some(AGE_TAG)
    }

    /// What the value is, for messages: "a list", "the number 3".
    pub fn describe(&self) -> String {
        match &self.kind {
            _ if self.is_secret() => "an encrypted value".into(),
            Kind::Null => "nothing".into(),
            Kind::Bool(b) => format!("the boolean {b}"),
            Kind::Int(n) => format!("the number {n}"),
            Kind::Float(n) => format!("the number {n}"),
            Kind::String(s) if s.len() <= 40 => format!("the string {s:?}"),
            Kind::String(_) => "a string".into(),
            Kind::Seq(_) => "a list".into(),
            Kind::Map(_) => "a mapping".into(),
        }
    }

    /// Drops places and tags.
    pub fn to_value(&self) -> Value {
        match &self.kind {
            Kind::Null => Value::Null,
            Kind::Bool(b) => (*b).into(),
            Kind::Int(n) => (*n).into(),
            Kind::Float(n) => (*n).into(),
            Kind::String(s) => Value::String(s.to_string()),
            Kind::Seq(items) => items.iter().map(Node::to_value).collect(),
            Kind::Map(map) => {
                map.iter().map(|(key, node)| (key.name.to_string(), node.to_value())).collect::<ValueMap>().into()
            }
        }
    }

    /// As `to_value`, for people: secrets are not shown, sealed or opened.
    pub fn to_shown(&self) -> Value {
        match &self.kind {
            _ if self.is_secret() => MASK.into(),
            Kind::Seq(items) => items.iter().map(Node::to_shown).collect(),
            Kind::Map(map) => {
                map.iter().map(|(key, node)| (key.name.to_string(), node.to_shown())).collect::<ValueMap>().into()
            }
            _ => self.to_value(),
        }
    }

    /// Gives a run-time value the place of the expression it came from.
    pub fn from_value(span: Span, value: Value) -> Self {
        let kind = match value {
            Value::Null => Kind::Null,
            Value::Bool(b) => Kind::Bool(b),
            Value::Number(n) => n.as_i64().map_or_else(|| Kind::Float(n.as_f64().unwrap_or(f64::NAN)), Kind::Int),
            Value::String(s) => Kind::String(s.into()),
            Value::Array(items) => Kind::Seq(items.into_iter().map(|v| Self::from_value(span, v)).collect()),
            Value::Object(map) => Kind::Map(Map::new(
                map.into_iter().map(|(name, v)| (Key { name: name.into(), span }, Self::from_value(span, v))).collect(),
            )),
        };
        Self::new(span, kind)
    }
}
