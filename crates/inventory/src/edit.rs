//! Changes to the text of an inventory: one member more, one less, or one that is elsewhere; one release more.
//!
//! In: the text of a file. Out: edits of it by place, so that whatever else stands there, comments too, stays as it is. A range
//! of members gives away the one that changes. What cannot be edited with certainty (aliases, encrypted values, names with
//! several ranges) is refused; whoever asks shows the person what to write instead.

mod releases;

use std::{collections::BTreeMap, ops::Range};

use serde::{Deserialize, Serialize};

pub use releases::{has_clusters, release_entry, releases, with_release};

use super::range::{NodeSet, fill};
use crate::{
    model::{Value, ValueMap},
    source::{Diagnostics, Kind, Map, Node, Sources, parse},
};

/// Bytes of a text, and what stands there from now on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    pub start: usize,
    pub end: usize,
    pub text: String,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    #[error("the file does not describe `{0}`")]
    NotThere(String),
    #[error("{0}")]
    NotPlain(&'static str),
}

/// Applies edits that do not overlap; nothing if one of them is outside of the text.
pub fn apply(text: &str, edits: &[Edit]) -> Option<String> {
    let mut sorted: Vec<&Edit> = edits.iter().collect();
    sorted.sort_by_key(|edit| (edit.start, edit.end));
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for edit in sorted {
        out += text.get(at..edit.start)?;
        out += &edit.text;
        at = text.get(edit.start..edit.end).map(|_| edit.end)?;
    }
    out += text.get(at..)?;
    Some(out)
}

/// Where a file describes a cluster: from its name to the end of its last line, or of its braces. Nothing if that cannot be told,
/// as with an alias.
pub fn cluster_entry(text: &str, cluster: &str) -> Option<Range<usize>> {
    let mut sources = Sources::default();
    let file = sources.add("inventory", text);
    let root = parse(&sources, file, &mut Diagnostics::default())?;
    let (key, node) = root.as_map()?.get("clusters")?.as_map()?.entry(cluster)?;
    let (start, value) = (key.span.start as usize, node.span.start as usize);
    if value < key.span.end as usize {
        return None;
    }
    let end = node.span.end as usize;
    let is_flow = text.get(value..)?.starts_with('{');
    Some(start..if is_flow { end } else { (line_end(text, end) + 1).min(text.len()) })
}

/// Where a file describes a member, and how.
#[derive(Clone, Debug)]
pub struct Described {
    name: String,
    key: (usize, usize),
    value: (usize, usize),
    /// What it says, with the value of the range filled in.
    body: Map,
    /// The key without this member, where it is a range of several.
    rest: Option<String>,
    in_flow: bool,
    /// Whether the key is the range of this member alone.
    is_range: bool,
    next: Option<usize>,
    previous: Option<usize>,
}

impl Described {
    /// The entry of a member of a cluster.
    pub fn find(text: &str, cluster: &str, name: &str) -> Result<Self, EditError> {
        let not_there = || EditError::NotThere(name.to_owned());
        let mut sources = Sources::default();
        let file = sources.add("inventory", text);
        let root = parse(&sources, file, &mut Diagnostics::default()).ok_or_else(not_there)?;
        let within = |node: &Node, key: &str| node.as_map().and_then(|map| map.get(key)).cloned();
        let members = within(&root, "clusters")
            .and_then(|clusters| within(&clusters, cluster))
            .and_then(|cluster| within(&cluster, "members"))
            .ok_or_else(not_there)?;
        let map = members.as_map().ok_or_else(not_there)?;
        let entries: Vec<_> = map.iter().collect();
        for (index, (key, node)) in entries.iter().enumerate() {
            let Ok(set) = NodeSet::parse(&key.name) else { continue };
            let Some(found) = set.expand().find(|expanded| expanded.name == name) else { continue };
            let key_place = (key.span.start as usize, key.span.end as usize);
            let value = place_of(text, key_place.1, node)?;
            if has_tags(node) {
                return Err(EditError::NotPlain("its entry has encrypted values"));
            }
            let filled = fill(node, &found.values).map_err(|_| not_there())?;
            let end_of = |(key, node): &(crate::source::Key, Node)| {
                place_of(text, key.span.end as usize, node).map(|(_, end)| end)
            };
            return Ok(Self {
                name: name.to_owned(),
                key: key_place,
                value,
                body: filled.as_map().cloned().unwrap_or_default(),
                rest: without(&set, &key.name, name, &text[key_place.0..key_place.1])?,
                is_range: !found.values.is_empty(),
                in_flow: text[members.span.start as usize..].starts_with('{'),
                next: entries.get(index + 1).map(|(key, _)| key.span.start as usize),
                previous: index.checked_sub(1).map(|before| end_of(entries[before])).transpose()?,
            });
        }
        Err(not_there())
    }

    /// What its entry says.
    pub fn body(&self) -> ValueMap {
        self.body.iter().map(|(key, node)| (key.name.to_string(), node.to_value())).collect()
    }

    /// It goes.
    pub fn removed(&self, text: &str) -> Vec<Edit> {
        let (start, end) = match (&self.rest, self.in_flow) {
            (Some(rest), _) => return vec![Edit { start: self.key.0, end: self.key.1, text: rest.clone() }],
            (None, false) => (line_start(text, self.key.0), (line_end(text, self.value.1) + 1).min(text.len())),
            (None, true) => match (self.next, self.previous) {
                (Some(next), _) => (self.key.0, next),
                (None, Some(previous)) => (previous, self.value.1),
                (None, None) => (self.key.0, self.value.1),
            },
        };
        vec![Edit { start, end, text: String::new() }]
    }

    /// Another comes right behind it.
    pub fn followed_by(&self, text: &str, name: &str, body: &ValueMap) -> Edit {
        let entry = format!("{}: {}", scalar(name), flow(&Value::Object(body.clone())));
        match self.in_flow {
            true => Edit { start: self.value.1, end: self.value.1, text: format!(", {entry}") },
            false => {
                let at = line_end(text, self.value.1);
                let start = line_start(text, self.key.0);
                let indent = &text[start..self.key.0];
                Edit { start: at, end: at, text: format!("\n{indent}{entry}") }
            }
        }
    }

    /// It stays under its name, with other values of some of its fields. A range gives it away.
    pub fn changed(&self, text: &str, fields: &[(&str, Value)]) -> Vec<Edit> {
        let is_there = |name: &str| self.body.get(name).is_some();
        let scalar_edit = |(name, value): &(&str, Value)| {
            let node = self.body.get(name).filter(|node| !matches!(node.kind, Kind::Map(_) | Kind::Seq(_)))?;
            let (start, end) = (node.span.start as usize, node.span.end as usize);
            let inside = start >= self.value.0 && end <= self.value.1 && start < end;
            inside.then(|| Edit { start, end, text: flow(value) })
        };
        if !self.is_range
            && let Some(edits) = fields.iter().map(scalar_edit).collect::<Option<Vec<_>>>()
        {
            return edits;
        }
        let mut body = self.body();
        for (name, value) in fields {
            body.insert((*name).to_owned(), value.clone());
        }
        // One more field, in a mapping that is written in one line.
        if !self.is_range && !fields.iter().any(|(name, _)| is_there(name)) && text[self.value.0..].starts_with('{') {
            let more: String = fields.iter().map(|(name, value)| format!("{name}: {}, ", flow(value))).collect();
            let at = self.value.0 + 1;
            let (space, more) =
                if self.body.is_empty() { ("", more.trim_end_matches(", ")) } else { (" ", more.trim_end()) };
            return vec![Edit { start: at, end: at, text: format!("{space}{more}") }];
        }
        let mut edits = self.removed(text);
        let entry = self.followed_by(text, &self.name, &body);
        if self.rest.is_some() {
            edits.push(entry);
            return edits;
        }
        // Its own entry, written anew in place.
        let text = format!("{}: {}", scalar(&self.name), flow(&Value::Object(body)));
        vec![Edit { start: self.key.0, end: self.value.1, text }]
    }
}

/// What a file says of each member of a cluster, ranges told apart. Nothing if that cannot be told.
pub fn members(text: &str, cluster: &str) -> Option<BTreeMap<String, Value>> {
    let mut sources = Sources::default();
    let file = sources.add("inventory", text);
    let mut diagnostics = Diagnostics::default();
    let root = parse(&sources, file, &mut diagnostics)?;
    if diagnostics.has_errors() {
        return None;
    }
    let within = |node: Node, key: &str| node.as_map().and_then(|map| map.get(key)).cloned();
    let members = ["clusters", cluster, "members"].into_iter().try_fold(root, within)?;
    let mut all = BTreeMap::new();
    for (key, node) in members.as_map()?.iter() {
        for expanded in NodeSet::parse(&key.name).ok()?.expand() {
            all.insert(expanded.name, fill(node, &expanded.values).ok()?.to_value());
        }
    }
    Some(all)
}

fn has_tags(node: &Node) -> bool {
    node.tag.is_some()
        || match &node.kind {
            Kind::Seq(items) => items.iter().any(has_tags),
            Kind::Map(map) => map.iter().any(|(_, node)| has_tags(node)),
            _ => false,
        }
}

/// Where a value stands. One that comes from an alias or a merge stands somewhere else.
fn place_of(text: &str, key_end: usize, node: &Node) -> Result<(usize, usize), EditError> {
    let colon = text[key_end..].find(':').map_or(key_end, |at| key_end + at + 1);
    if node.is_null() {
        let word = text[colon..].trim_start_matches(' ');
        let start = colon + (text[colon..].len() - word.len());
        let length =
            ["null", "~", "Null", "NULL"].iter().find(|null| word.starts_with(**null)).map_or(0, |null| null.len());
        return Ok(if length == 0 { (colon, colon) } else { (start, start + length) });
    }
    let (start, end) = (node.span.start as usize, node.span.end as usize);
    let between = text.get(colon..start).map(|between| {
        between.lines().all(|line| {
            let line = line.trim();
            line.is_empty() || line.starts_with('#')
        })
    });
    match between {
        Some(true) => Ok((start, end)),
        _ => Err(EditError::NotPlain("its entry is an alias, or has an anchor")),
    }
}

/// The text of a key without one of its names; nothing if no other is left.
fn without(set: &NodeSet, key: &str, name: &str, written: &str) -> Result<Option<String>, EditError> {
    if set.len() == 1 {
        return Ok(None);
    }
    let (Some(open), Some(close)) = (key.find('['), key.rfind(']')) else { return Ok(None) };
    if key[open + 1..close].contains('[') {
        return Err(EditError::NotPlain("its entry is a range of ranges"));
    }
    let (prefix, suffix) = (&key[..open], &key[close + 1..]);
    let values: Vec<String> = set
        .expand()
        .filter(|expanded| expanded.name != name)
        .filter_map(|expanded| expanded.values.first().cloned())
        .collect();
    let rest = format!("{prefix}[{}]{suffix}", ranges(&values));
    let quote = written.chars().next().filter(|letter| matches!(letter, '"' | '\''));
    Ok(Some(quote.map_or_else(|| rest.clone(), |quote| format!("{quote}{rest}{quote}"))))
}

/// `1-3,5` for the values 1, 2, 3 and 5.
fn ranges(values: &[String]) -> String {
    let number = |value: &String| value.parse::<u64>().ok().filter(|_| !value.starts_with('0') || value == "0");
    let mut parts: Vec<(String, String)> = Vec::new();
    for value in values {
        let follows = |(_, last): &(String, String)| number(last).is_some_and(|last| number(value) == Some(last + 1));
        match parts.last_mut() {
            Some(part) if follows(part) => part.1.clone_from(value),
            _ => parts.push((value.clone(), value.clone())),
        }
    }
    let part = |(first, last): &(String, String)| if first == last { first.clone() } else { format!("{first}-{last}") };
    parts.iter().map(part).collect::<Vec<_>>().join(",")
}

fn line_start(text: &str, at: usize) -> usize {
    text[..at].rfind('\n').map_or(0, |end| end + 1)
}

/// Where the line ends, before its newline.
fn line_end(text: &str, at: usize) -> usize {
    text[at..].find('\n').map_or(text.len(), |end| at + end)
}

/// A value in one line.
pub fn flow(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text),
        Value::Array(items) => format!("[{}]", items.iter().map(flow).collect::<Vec<_>>().join(", ")),
        Value::Object(map) if map.is_empty() => "{}".to_owned(),
        Value::Object(map) => {
            let fields: Vec<String> =
                map.iter().map(|(key, value)| format!("{}: {}", scalar(key), flow(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        other => other.to_string(),
    }
}

/// Without quotes where nobody could take it for anything else.
fn scalar(text: &str) -> String {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-' | '/');
    let is_name = text.starts_with(|letter: char| letter.is_ascii_alphabetic() || letter == '/');
    let is_address = text.starts_with(|letter: char| letter.is_ascii_digit()) && text.matches('.').count() == 3;
    let keyword = matches!(text.to_ascii_lowercase().as_str(), "true" | "false" | "null");
    match text.chars().all(is_word) && (is_name || is_address) && !keyword {
        true => text.to_owned(),
        // What JSON quotes is quoted well for YAML, too.
        false => escaped(&Value::String(text.to_owned()).to_string()),
    }
}

/// JSON leaves some characters as they are that end a line for others, or that terminals obey.
fn escaped(quoted: &str) -> String {
    let is_harmful = |c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}');
    let escape = |c: char| if is_harmful(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    quoted.chars().map(escape).collect()
}

/// The value, such that rendering gives back every text in it as it is. For what somebody else has said: it is never a template.
pub fn literal(value: &Value) -> Value {
    match value {
        Value::String(text) => literal_text(text).into(),
        Value::Array(items) => items.iter().map(literal).collect(),
        Value::Object(map) => map.iter().map(|(key, value)| (key.clone(), literal(value))).collect::<ValueMap>().into(),
        other => other.clone(),
    }
}

/// Braces that would begin something become expressions that give a brace.
fn literal_text(text: &str) -> String {
    if !text.contains("{{") && !text.contains("{%") {
        return text.to_owned();
    }
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, letters.peek()) {
            ('{', Some('{' | '%' | '#')) => out += "{{ '{' }}",
            _ => out.push(letter),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::{model::Span, source::Sources};
    use etcdrun_base::template::{Engine, Scope};

    const BLOCK: &str = "\
clusters:
  prod:
    members:   # three of them
      # the first
      etcd-1: { address: 10.0.0.1 }   # in rack a
      etcd-2:
        address: 10.0.0.2   # in rack b
        vars: { note: x }
      etcd-3:
    etcd: { version: 3.5.34 }
";
    const RANGE: &str = "clusters:\n  prod:\n    members:\n      etcd-[1-3]: { hypervisor: \"hv{n}\", interfaces: [{ bridge: br0, ip: \"10.0.0.{n+20}/24\" }] } # all\n";
    const FLOW: &str = "clusters: { prod: { members: { a: { address: 10.0.0.1 }, b: {}, c: ~ } } }\n";

    fn member(text: &str, name: &str) -> Described {
        Described::find(text, "prod", name).unwrap()
    }

    fn body(value: Value) -> ValueMap {
        value.as_object().unwrap().clone()
    }

    #[test]
    fn one_goes_and_comments_stay() {
        let gone = apply(BLOCK, &member(BLOCK, "etcd-2").removed(BLOCK)).unwrap();
        assert_eq!(
            gone,
            BLOCK.replace("      etcd-2:\n        address: 10.0.0.2   # in rack b\n        vars: { note: x }\n", "")
        );
        let gone = apply(BLOCK, &member(BLOCK, "etcd-3").removed(BLOCK)).unwrap();
        assert_eq!(gone, BLOCK.replace("      etcd-3:\n", ""));
        for (name, left) in [
            ("a", "{ b: {}, c: ~ }"),
            ("b", "{ a: { address: 10.0.0.1 }, c: ~ }"),
            ("c", "{ a: { address: 10.0.0.1 }, b: {} }"),
        ] {
            let gone = apply(FLOW, &member(FLOW, name).removed(FLOW)).unwrap();
            assert_eq!(gone, format!("clusters: {{ prod: {{ members: {left} }} }}\n"), "{name}");
        }
    }

    #[test]
    fn a_range_gives_one_away() {
        let gone = apply(RANGE, &member(RANGE, "etcd-2").removed(RANGE)).unwrap();
        assert_eq!(gone, RANGE.replace("[1-3]", "[1,3]"));
        let two = member(RANGE, "etcd-2");
        assert_eq!(two.body()["interfaces"], json!([{ "bridge": "br0", "ip": "10.0.0.22/24" }]));
        let moved = apply(RANGE, &two.changed(RANGE, &[("hypervisor", json!("hv9"))])).unwrap();
        let entry = "      etcd-2: { hypervisor: hv9, interfaces: [{ bridge: br0, ip: 10.0.0.22/24 }] }\n";
        assert_eq!(moved, RANGE.replace("[1-3]", "[1,3]") + entry);
        let values = |text: &str| ranges(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        assert_eq!((values("1 2 3 5"), values("01 02 4")), ("1-3,5".to_owned(), "01,02,4".to_owned()));
    }

    #[test]
    fn another_comes_behind_it() {
        let new = body(json!({ "address": "10.0.0.4", "vars": { "note": "a b", "port": 7 } }));
        let more = apply(BLOCK, &[member(BLOCK, "etcd-2").followed_by(BLOCK, "etcd-4", &new)]).unwrap();
        let entry = "      etcd-4: { address: 10.0.0.4, vars: { note: \"a b\", port: 7 } }\n      etcd-3:\n";
        assert_eq!(more, BLOCK.replace("      etcd-3:\n", entry));
        let more = apply(FLOW, &[member(FLOW, "c").followed_by(FLOW, "d", &new)]).unwrap();
        assert!(more.contains("c: ~, d: { address: 10.0.0.4,"), "{more}");
    }

    #[test]
    fn fields_change_in_place() {
        let changed =
            |name: &str| apply(BLOCK, &member(BLOCK, name).changed(BLOCK, &[("address", json!("10.9.9.9"))])).unwrap();
        assert_eq!(changed("etcd-1"), BLOCK.replace("10.0.0.1 ", "10.9.9.9 "));
        assert_eq!(changed("etcd-2"), BLOCK.replace("10.0.0.2 ", "10.9.9.9 "));
        assert_eq!(changed("etcd-3"), BLOCK.replace("etcd-3:", "etcd-3: { address: 10.9.9.9 }"));
        let more = apply(FLOW, &member(FLOW, "b").changed(FLOW, &[("address", json!("10.9.9.9"))])).unwrap();
        assert_eq!(member(&more, "b").body(), body(json!({ "address": "10.9.9.9" })), "{more}");
        let more = apply(BLOCK, &member(BLOCK, "etcd-1").changed(BLOCK, &[("zone", json!("b"))])).unwrap();
        assert_eq!(more, BLOCK.replace("{ address: 10.0.0.1 }", "{ zone: b, address: 10.0.0.1 }"));
    }

    #[test]
    fn what_stands_elsewhere_is_refused() {
        let alias = "x: &x { address: a }\nclusters:\n  prod:\n    members:\n      a: *x\n";
        assert!(matches!(Described::find(alias, "prod", "a"), Err(EditError::NotPlain(_))));
        let sealed = "clusters: { prod: { members: { a: { user: !age x } } } }\n";
        assert!(matches!(Described::find(sealed, "prod", "a"), Err(EditError::NotPlain(_))));
        assert!(matches!(Described::find(BLOCK, "prod", "etcd-9"), Err(EditError::NotThere(_))));
        assert!(matches!(Described::find(BLOCK, "test", "etcd-1"), Err(EditError::NotThere(_))));
    }

    #[test]
    fn edits_outside_of_the_text_are_refused() {
        assert_eq!(apply("ab", &[Edit { start: 1, end: 5, text: String::new() }]), None);
        assert_eq!(apply("ab", &[Edit { start: 1, end: 1, text: "x".into() }]).as_deref(), Some("axb"));
    }

    proptest! {
        /// Whatever somebody else has said is rendered as it was.
        #[test]
        fn what_is_literal_is_no_template(text in "[{}%#' a-z\n-]{0,16}") {
            let node = Node::from_value(Span::new(Sources::default().add("x.yaml", ""), 0, 0), literal(&json!([text, { "a": text }])));
            let rendered = Engine::new().render_node(&node, &Scope::default()).map(|node| node.to_value());
            prop_assert_eq!(rendered.map_err(|problem| problem.message), Ok(json!([text, { "a": text }])));
        }

        /// Whatever is written in one line is read back as it was.
        #[test]
        fn what_is_written_is_read_back(text in "(?s).{0,12}", number in any::<i32>(), flag in any::<bool>()) {
            let value = json!({ "a": text, "b": [number, flag, text], "c": { "d": text } });
            let written = format!("x: {}\n", flow(&value));
            let mut sources = Sources::default();
            let file = sources.add("x", written.as_str());
            let mut problems = Diagnostics::default();
            let node = parse(&sources, file, &mut problems);
            let read = node.map(|node| node.to_value()["x"].clone());
            prop_assert_eq!(read, Some(value), "{}", written);
        }
    }
}
