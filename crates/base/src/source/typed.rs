//! Nodes to typed values, through serde, with the place of every error.
//!
//! Two uses of one deserializer. `check` runs when a file is loaded: values that are still templates
//! stand for anything, all unknown keys are reported at once. `from_node` runs when a task is
//! dispatched and everything is rendered.

use std::cell::RefCell;

use serde::de::{
    self, DeserializeOwned, DeserializeSeed, EnumAccess, IntoDeserializer, MapAccess, SeqAccess, VariantAccess, Visitor,
};

use super::{
    Diagnostic, Diagnostics, did_you_mean,
    node::{Key, Kind, Map, Node},
    scalar::SCALAR,
};
use crate::model::{MASK, Span};

/// A value that does not fit its type.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{message}")]
pub struct TypeError {
    pub message: String,
    pub span: Option<Span>,
    pub help: Option<String>,
}

impl TypeError {
    fn at(mut self, span: Span) -> Self {
        self.span = self.span.or(Some(span));
        self
    }
}

impl de::Error for TypeError {
    fn custom<T: std::fmt::Display>(message: T) -> Self {
        Self { message: message.to_string(), span: None, help: None }
    }

    fn missing_field(field: &'static str) -> Self {
        Self::custom(format!("`{field}` is missing"))
    }

    fn unknown_field(field: &str, expected: &'static [&'static str]) -> Self {
        let help = did_you_mean(field, expected.iter().copied());
        let help = help.or_else(|| Some(format!("known keys: {}", expected.join(", "))));
        Self { message: format!("unknown key `{field}`"), span: None, help }
    }

    fn unknown_variant(variant: &str, expected: &'static [&'static str]) -> Self {
        let help = did_you_mean(variant, expected.iter().copied());
        Self { message: format!("`{variant}` is not one of {}", expected.join(", ")), span: None, help }
    }
}

impl From<TypeError> for Diagnostic {
    fn from(error: TypeError) -> Self {
        Diagnostic::error(error.span, error.message).maybe_help(error.help)
    }
}

/// Types a rendered node. Unknown keys are errors.
pub fn from_node<T: DeserializeOwned>(node: &Node) -> Result<T, Vec<Diagnostic>> {
    let found = RefCell::new(Vec::new());
    let result = T::deserialize(De { node, templates: false, found: &found });
    finish(result, found.into_inner())
}

/// Types a node as far as it is known before rendering. `None` if it cannot be right.
pub fn check<T: DeserializeOwned>(node: &Node, diagnostics: &mut Diagnostics) -> Option<T> {
    let found = RefCell::new(Vec::new());
    let result = T::deserialize(De { node, templates: true, found: &found });
    match finish(result, found.into_inner()) {
        Ok(value) => Some(value),
        Err(list) => {
            list.into_iter().for_each(|d| diagnostics.push(d));
            None
        }
    }
}

fn finish<T>(result: Result<T, TypeError>, mut found: Vec<Diagnostic>) -> Result<T, Vec<Diagnostic>> {
    match result {
        Ok(value) if found.is_empty() => Ok(value),
        Ok(_) => Err(found),
        Err(error) => {
            found.push(error.into());
            Err(found)
        }
    }
}

#[derive(Clone, Copy)]
struct De<'n> {
    node: &'n Node,
    /// Whether a template stands for any value.
    templates: bool,
    /// Problems that do not stop the reading.
    found: &'n RefCell<Vec<Diagnostic>>,
}

impl<'n> De<'n> {
    fn with(self, node: &'n Node) -> Self {
        Self { node, ..self }
    }

    fn is_later(self) -> bool {
        self.templates && (self.node.is_template() || self.node.is_sealed())
    }

    fn wrong(self, expected: &str) -> TypeError {
        let help = match (&self.node.kind, expected) {
            (Kind::String(s), "true or false") if matches!(&**s, "yes" | "on" | "y") => Some("write `true`".into()),
            (Kind::String(s), "true or false") if matches!(&**s, "no" | "off" | "n") => Some("write `false`".into()),
            _ => None,
        };
        let message = format!("expected {expected}, found {}", self.node.describe());
        TypeError { message, span: Some(self.node.span), help }
    }

    /// The text of a scalar as it would be typed on a command line.
    fn scalar_text(self) -> Result<String, TypeError> {
        match &self.node.kind {
            // What it says is not the value, and this command does not need it.
            _ if self.node.is_sealed() => Ok(MASK.to_owned()),
            Kind::String(s) => Ok(s.to_string()),
            Kind::Int(n) => Ok(n.to_string()),
            Kind::Float(n) => Ok(n.to_string()),
            Kind::Bool(b) => Ok(b.to_string()),
            _ => Err(self.wrong("a single value")),
        }
    }

    /// A rendered template is a string; `"{{ n }}"` may still mean a number.
    fn parsed<T: std::str::FromStr>(self) -> Option<T> {
        self.node.as_str().and_then(|text| text.trim().parse().ok())
    }

    fn place<T>(self, result: Result<T, TypeError>) -> Result<T, TypeError> {
        result.map_err(|error| error.at(self.node.span))
    }

    fn integer<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let result = match &self.node.kind {
            _ if self.is_later() => visitor.visit_i64(1),
            Kind::Int(n) => visitor.visit_i64(*n),
            Kind::String(_) if let Some(n) = self.parsed::<i64>() => visitor.visit_i64(n),
            _ => Err(self.wrong("a whole number")),
        };
        self.place(result)
    }

    fn float<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let result = match &self.node.kind {
            _ if self.is_later() => visitor.visit_f64(1.0),
            #[expect(clippy::cast_precision_loss, reason = "a float was asked for")]
            Kind::Int(n) => visitor.visit_f64(*n as f64),
            Kind::Float(n) => visitor.visit_f64(*n),
            Kind::String(_) if let Some(n) = self.parsed::<f64>() => visitor.visit_f64(n),
            _ => Err(self.wrong("a number")),
        };
        self.place(result)
    }

    /// Reports every key the type does not know, and hides them from it.
    fn known_entries(self, map: &'n Map, fields: &'static [&'static str]) -> Vec<&'n (Key, Node)> {
        let known = |key: &Key| fields.contains(&&*key.name);
        for (key, _) in map.iter().filter(|(key, _)| !known(key)) {
            let help = did_you_mean(&key.name, fields.iter().copied())
                .unwrap_or_else(|| format!("known keys: {}", fields.join(", ")));
            let unknown = Diagnostic::error(key.span, format!("unknown key `{}`", key.name)).help(help);
            self.found.borrow_mut().push(unknown);
        }
        map.iter().filter(|(key, _)| known(key)).collect()
    }
}

macro_rules! integers {
    ($($method:ident)*) => {$(
        fn $method<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
            self.integer(visitor)
        }
    )*};
}

impl<'n> de::Deserializer<'n> for De<'n> {
    type Error = TypeError;

    integers! {
        deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64
    }

    fn deserialize_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let result = match &self.node.kind {
            Kind::Null => visitor.visit_unit(),
            Kind::Bool(b) => visitor.visit_bool(*b),
            Kind::Int(n) => visitor.visit_i64(*n),
            Kind::Float(n) => visitor.visit_f64(*n),
            Kind::String(s) => visitor.visit_str(s),
            Kind::Seq(_) => return self.deserialize_seq(visitor),
            Kind::Map(_) => return self.deserialize_map(visitor),
        };
        self.place(result)
    }

    fn deserialize_bool<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let result = match &self.node.kind {
            _ if self.is_later() => visitor.visit_bool(false),
            Kind::Bool(b) => visitor.visit_bool(*b),
            // A template renders to text; only its two own spellings mean a boolean.
            Kind::String(_) if let Some(b) = self.parsed::<bool>() => visitor.visit_bool(b),
            _ => Err(self.wrong("true or false")),
        };
        self.place(result)
    }

    fn deserialize_f32<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.float(visitor)
    }

    fn deserialize_f64<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.float(visitor)
    }

    fn deserialize_char<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_str<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let result = match &self.node.kind {
            Kind::Null | Kind::Seq(_) | Kind::Map(_) => Err(self.wrong("a string")),
            _ => self.scalar_text().and_then(|text| visitor.visit_string(text)),
        };
        self.place(result)
    }

    fn deserialize_string<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_bytes<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_byte_buf<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_option<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        if self.node.is_null() { visitor.visit_none() } else { visitor.visit_some(self) }
    }

    fn deserialize_unit<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        if self.node.is_null() { visitor.visit_unit() } else { Err(self.wrong("nothing")) }
    }

    fn deserialize_unit_struct<V: Visitor<'n>>(self, _: &'static str, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_unit(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'n>>(self, name: &'static str, visitor: V) -> Result<V::Value, TypeError> {
        if name != SCALAR {
            return visitor.visit_newtype_struct(self);
        }
        if self.is_later() {
            return visitor.visit_unit();
        }
        self.place(self.scalar_text().and_then(|text| visitor.visit_string(text)))
    }

    /// One value where a list belongs is a list of one, as people write it.
    fn deserialize_seq<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let items = match &self.node.kind {
            _ if self.is_later() => &[],
            Kind::Seq(items) => items.as_slice(),
            Kind::Null | Kind::Map(_) => return Err(self.wrong("a list")),
            _ => std::slice::from_ref(self.node),
        };
        self.place(visitor.visit_seq(Items { de: self, items: items.iter() }))
    }

    fn deserialize_tuple<V: Visitor<'n>>(self, _: usize, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_tuple_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        _: usize,
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        self.deserialize_seq(visitor)
    }

    fn deserialize_map<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        let entries = match &self.node.kind {
            _ if self.is_later() => Vec::new(),
            Kind::Map(map) => map.iter().collect(),
            _ => return Err(self.wrong("a mapping")),
        };
        self.place(visitor.visit_map(Entries { de: self, entries: entries.into_iter(), value: None }))
    }

    fn deserialize_struct<V: Visitor<'n>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        let entries = match &self.node.kind {
            _ if self.is_later() => Vec::new(),
            Kind::Map(map) => self.known_entries(map, fields),
            Kind::Null => Vec::new(),
            _ => return Err(self.wrong("a mapping")),
        };
        self.place(visitor.visit_map(Entries { de: self, entries: entries.into_iter(), value: None }))
    }

    fn deserialize_enum<V: Visitor<'n>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        let result = match &self.node.kind {
            _ if self.is_later() => visitor.visit_enum(variants.first().copied().unwrap_or("").into_deserializer()),
            Kind::Map(map) if map.len() == 1 => visitor.visit_enum(OneKey { de: self, map }),
            Kind::Null | Kind::Seq(_) | Kind::Map(_) => Err(self.wrong(&format!("one of {}", variants.join(", ")))),
            _ => self.scalar_text().and_then(|text| visitor.visit_enum(text.into_deserializer())),
        };
        self.place(result)
    }

    fn deserialize_identifier<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        self.deserialize_str(visitor)
    }

    fn deserialize_ignored_any<V: Visitor<'n>>(self, visitor: V) -> Result<V::Value, TypeError> {
        visitor.visit_unit()
    }
}

struct Items<'n> {
    de: De<'n>,
    items: std::slice::Iter<'n, Node>,
}

impl<'n> SeqAccess<'n> for Items<'n> {
    type Error = TypeError;

    fn next_element_seed<T: DeserializeSeed<'n>>(&mut self, seed: T) -> Result<Option<T::Value>, TypeError> {
        self.items.next().map(|node| seed.deserialize(self.de.with(node))).transpose()
    }
}

struct Entries<'n> {
    de: De<'n>,
    entries: std::vec::IntoIter<&'n (Key, Node)>,
    value: Option<&'n Node>,
}

impl<'n> MapAccess<'n> for Entries<'n> {
    type Error = TypeError;

    fn next_key_seed<K: DeserializeSeed<'n>>(&mut self, seed: K) -> Result<Option<K::Value>, TypeError> {
        let Some((key, node)) = self.entries.next() else {
            return Ok(None);
        };
        self.value = Some(node);
        seed.deserialize((&*key.name).into_deserializer()).map(Some).map_err(|e: TypeError| e.at(key.span))
    }

    fn next_value_seed<V: DeserializeSeed<'n>>(&mut self, seed: V) -> Result<V::Value, TypeError> {
        let node = self.value.take().ok_or_else(|| de::Error::custom("a value without a key"))?;
        seed.deserialize(self.de.with(node))
    }
}

struct OneKey<'n> {
    de: De<'n>,
    map: &'n Map,
}

impl<'n> EnumAccess<'n> for OneKey<'n> {
    type Error = TypeError;
    type Variant = De<'n>;

    fn variant_seed<V: DeserializeSeed<'n>>(self, seed: V) -> Result<(V::Value, De<'n>), TypeError> {
        let Some((key, node)) = self.map.iter().next() else {
            return Err(self.de.wrong("one key"));
        };
        let variant = seed.deserialize((&*key.name).into_deserializer()).map_err(|e: TypeError| e.at(key.span))?;
        Ok((variant, self.de.with(node)))
    }
}

impl<'n> VariantAccess<'n> for De<'n> {
    type Error = TypeError;

    fn unit_variant(self) -> Result<(), TypeError> {
        if self.node.is_null() { Ok(()) } else { Err(self.wrong("nothing")) }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'n>>(self, seed: T) -> Result<T::Value, TypeError> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'n>>(self, _: usize, visitor: V) -> Result<V::Value, TypeError> {
        de::Deserializer::deserialize_seq(self, visitor)
    }

    fn struct_variant<V: Visitor<'n>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, TypeError> {
        de::Deserializer::deserialize_struct(self, "", fields, visitor)
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::{
        model::{FileMode, Seconds},
        source::{Sources, parse},
    };

    #[derive(Debug, PartialEq, Deserialize)]
    struct Args {
        path: String,
        #[serde(default)]
        mode: Option<FileMode>,
        #[serde(default)]
        force: bool,
        #[serde(default)]
        count: Option<u16>,
        #[serde(default)]
        kind: Option<Shape>,
        #[serde(default)]
        timeout: Option<Seconds>,
        #[serde(default)]
        list: Vec<String>,
    }

    #[derive(Debug, PartialEq, Deserialize)]
    #[serde(rename_all = "snake_case")]
    enum Shape {
        Round,
        Square,
    }

    fn node(text: &str) -> Node {
        let mut sources = Sources::default();
        let file = sources.add("t.yaml", text);
        parse(&sources, file, &mut Diagnostics::default()).unwrap()
    }

    fn problems(text: &str) -> Vec<(String, Option<String>)> {
        let mut diagnostics = Diagnostics::default();
        let _: Option<Args> = check(&node(text), &mut diagnostics);
        diagnostics.iter().map(|d| (d.message.clone(), d.help.clone())).collect()
    }

    #[test]
    fn templates_stand_for_anything_when_checked() {
        let text = r#"{path: "{{ p }}", mode: "{{ m }}", force: "{{ f }}", count: "{{ c }}", kind: "{{ k }}", timeout: "{{ t }}", list: "{{ l }}"}"#;
        assert_eq!(problems(text), []);
    }

    #[test]
    fn all_unknown_keys_come_at_once() {
        let found = problems("{path: x, mood: 1, forse: true}");
        assert_eq!(found.len(), 2);
        assert_eq!(found[0], ("unknown key `mood`".into(), Some("did you mean `mode`?".into())));
        assert_eq!(found[1].1.as_deref(), Some("did you mean `force`?"));
    }

    #[test]
    fn wrong_types_are_named() {
        assert_eq!(problems("{path: [x]}")[0].0, "expected a string, found a list");
        assert_eq!(problems("{}")[0].0, "`path` is missing");
        assert_eq!(problems("{path: x, force: yes}")[0].1.as_deref(), Some("write `true`"));
        assert_eq!(problems("{path: x, kind: rond}")[0].1.as_deref(), Some("did you mean `round`?"));
        assert!(problems("{path: x, mode: '0999'}")[0].0.contains("not a file mode"));
        assert!(problems("{path: x, count: 70000}")[0].0.contains("70000"));
    }

    #[test]
    fn rendered_text_becomes_typed() {
        let args: Args = from_node(&node("{path: 3, force: 'true', count: '7', list: one}")).unwrap();
        assert_eq!((args.path.as_str(), args.force, args.count), ("3", true, Some(7)));
        assert_eq!(args.list, ["one"]);
    }
}
